"""The error tree: every error that gem raises on purpose.

Each class inherits from GemError and from the builtin it stands for, so ``except ValueError`` keeps
working, and each survives pickling, so that it can cross a process border. To add one: subclass the
nearest GemError and the builtin, keep the constructor at one message, export it here.

::

    GemError
     |- for the user: the command line shows the message alone, without a traceback
     |   |- UnknownEnv        ValueError           no environment, wrapper or agent of that name
     |   |- DuplicateEnv      ValueError           the id is taken
     |   |- BadArgument       ValueError           a value out of range or of the wrong shape
     |   |   '- UnknownArgument  TypeError         a keyword that nobody accepts
     |   |- BadAction         TypeError            an action that is not text
     |   |- MissingExtra      ImportError          an optional package is absent; holds the pip line
     |   |- MissingData       FileNotFoundError    a data set is neither here nor reachable
     |   |- ResetNeeded       RuntimeError         step before reset
     |   |- EpisodeOver       RuntimeError         step after the end
     |   |- EnvClosed         RuntimeError         any use after close
     |   |- CannotFork        NotImplementedError  a live environment that cannot be copied
     |   |- NoSolver          NotImplementedError  the environment has no solve() or no random actor
     |   |- SchemaMismatch    ValueError           a file written under another schema or vocabulary
     |   |- StoreError        OSError              a store or checkpoint cannot be written or read
     |   |   '- DuplicateEpisode  OSError          the store holds an episode of that id already
     |   '- ContractBroken    AssertionError       an environment does not keep the contract
     |- for the agent: the message becomes observation text, the episode goes on
     |   |- IllegalMove       ValueError
     |   '- ToolError         RuntimeError
     '- for the outcome: something around the task failed, the episode gets no verdict
         '- NoVerdict         RuntimeError         a sandbox, tool server or grader failed on its own
             |- WorkerDied                         the process or actor that held an environment is gone
             |- OutOfTime                          the time that an agent may take is spent
             '- AgentUnavailable                   the agent can answer nobody: the run stops
"""

from __future__ import annotations

from collections.abc import Iterable


class GemError(Exception):
    """Root of every error that gem raises on purpose."""


class UnknownEnv(GemError, ValueError):
    """A name that nothing is registered under."""


class DuplicateEnv(GemError, ValueError):
    """An id that is already registered."""


class BadArgument(GemError, ValueError):
    """An argument with a value that is not accepted."""


class UnknownArgument(BadArgument, TypeError):
    """A keyword that the callee does not take."""


class BadAction(GemError, TypeError):
    """An action that is not of the type the environment takes."""


class MissingExtra(GemError, ImportError):
    """An optional dependency that is not installed; the message holds the pip line."""


class MissingData(GemError, FileNotFoundError):
    """A data set that is neither here nor reachable; the message holds the ways to supply it."""


class ResetNeeded(GemError, RuntimeError):
    """step() before reset()."""


class EpisodeOver(GemError, RuntimeError):
    """step() after the episode ended."""


class EnvClosed(GemError, RuntimeError):
    """Use of an environment after close()."""


class CannotFork(GemError, NotImplementedError):
    """fork() of an environment whose state cannot be copied."""


class NoSolver(GemError, NotImplementedError):
    """The environment offers no solver or no random actor."""


class SchemaMismatch(GemError, ValueError):
    """A stored file of another schema, vocabulary or configuration."""


class StoreError(GemError, OSError):
    """A store or checkpoint that cannot be written or read."""


class DuplicateEpisode(StoreError):
    """An episode whose id the store holds already."""


class ContractBroken(GemError, AssertionError):
    """An environment that does not do what its spec claims."""


class IllegalMove(GemError, ValueError):
    """A move that the rules forbid; the message is shown to the agent."""


class ToolError(GemError, RuntimeError):
    """A tool call that failed through the agent's doing; the message is shown to the agent."""


class NoVerdict(GemError, RuntimeError):
    """Infrastructure failed, so the episode cannot be scored: it is masked, never counted as 0."""


class WorkerDied(NoVerdict):
    """The worker that held an environment died or hung."""


class OutOfTime(NoVerdict):
    """An agent used up the seconds that it may take over an episode (`Limits.policy_s`)."""


class AgentUnavailable(NoVerdict):
    """An agent can answer nobody, and asking on is no use: a key is refused, a server is gone.

    A run stops: what was finished is stored, and the rest stays unplayed.
    """


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x' or 'y'?"`` for the known names nearest to `name`, or ``""``."""
    import difflib  # here, because `import gem` is to be light and few names are misspelt

    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def missing_extra(what: str, package: str, extra: str) -> MissingExtra:
    """Build the error for an absent optional package, with the pip line that brings it."""
    return MissingExtra(f"{what} needs the {package} package: pip install 'gem-gym[{extra}]'")


def text_of_error(error: BaseException) -> str:
    """Return what an error says; those of others may fail even in that."""
    try:
        return str(error)
    except Exception as worse:
        return f"{type(error).__name__}, whose text cannot be had: {type(worse).__name__}"
