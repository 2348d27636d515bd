"""The error tree: every error that gem raises on purpose.

Each class inherits from GemError and from the builtin it stands for, so ``except ValueError`` keeps
working, and each survives pickling, so that it can cross a process border. To add one: subclass the
nearest GemError and the builtin, keep the constructor at one message, say cause and cure in its docstring
(they are the troubleshooting page), export it here.

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
    """A name that nothing is registered under.

    Cause: The id, wrapper or agent is misspelt, or the package that registers it is not installed.

    Cure: Take a name that the message suggests, or one of `gem-gym list`. Install the package; its entry
    point in the group `gem.envs` registers its ids.
    """


class DuplicateEnv(GemError, ValueError):
    """An id that is already registered.

    Cause: Two different environments were registered under one id, by two packages for instance.

    Cure: Choose another id, with a family of your own. In a notebook, register once, in a cell of its
    own.
    """


class BadArgument(GemError, ValueError):
    """An argument with a value that is not accepted.

    Cause: A value is out of range, has the wrong shape, or does not go together with another one.

    Cure: The message names the argument, the value and what is accepted. Pass one of these.
    """


class UnknownArgument(BadArgument, TypeError):
    """A keyword that the callee does not take.

    Cause: A keyword is misspelt, or belongs to another environment, wrapper or version.

    Cure: The message lists the keywords that are taken. For an environment, its page has them under Ids.
    """


class BadAction(GemError, TypeError):
    """An action that is not of the type the environment takes.

    Cause: `step` was given something that is not text, as a list of tokens or a whole reply.

    Cure: Pass the text that the agent wrote: for a `Reply`, `reply.text`. Environments of several agents
    take a dict by agent.
    """


class MissingExtra(GemError, ImportError):
    """An optional dependency that is not installed; the message holds the pip line.

    Cause: A feature needs a package that the light base does not bring.

    Cure: Type the pip line of the message, as `pip install 'gem-gym[train]'`. `gem-gym doctor` lists what
    is missing.
    """


class MissingData(GemError, FileNotFoundError):
    """A data set that is neither here nor reachable; the message holds the ways to supply it.

    Cause: The data set is neither in `GEM_DATA` nor in a cache, and no network or hub was reached; or a
    file has moved.

    Cure: Set `GEM_DATA` to a folder of data sets, or pass rows or a file of your own. The message names
    both.
    """


class ResetNeeded(GemError, RuntimeError):
    """step() before reset().

    Cause: A new environment, or one that was restored without a state, was stepped at once.

    Cure: Call `env.reset(seed=...)` before the first `step`.
    """


class EpisodeOver(GemError, RuntimeError):
    """step() after the episode ended.

    Cause: The last step returned `terminated` or `truncated`, and the loop went on.

    Cure: Leave the loop at the end, or call `reset`. A vector of environments resets by itself.
    """


class EnvClosed(GemError, RuntimeError):
    """Use of an environment after close().

    Cause: The environment, sandbox or store was closed, often by leaving its `with` block.

    Cure: Use it inside the block, or make another one.
    """


class CannotFork(GemError, NotImplementedError):
    """fork() of an environment whose state cannot be copied.

    Cause: The state is outside this process, as a live terminal or a session on a server, or it cannot be
    repeated.

    Cure: Ask `gem.spec(id).forkable` before. Take an environment that can be forked, or play the actions
    again on a new one.
    """


class NoSolver(GemError, NotImplementedError):
    """The environment offers no solver or no random actor.

    Cause: The environment has no expert, no random actor, or no instance yet.

    Cure: `gem.spec(id).solver` says what there is, and `gem-gym list` too. Choose another agent, or call
    `reset` first.
    """


class SchemaMismatch(GemError, ValueError):
    """A stored file of another schema, vocabulary or configuration.

    Cause: The file was written by another version of gem, with another tokenizer, or by other settings
    than these.

    Cure: Read it with the version or the settings that wrote it, or write to another place. The message
    names both sides.
    """


class StoreError(GemError, OSError):
    """A store or checkpoint that cannot be written or read.

    Cause: The disk is full, a folder is not yours, the file is damaged, or another process holds its
    lock.

    Cure: Free space, choose another folder, or end the other process. What was stored before stays
    readable.
    """


class DuplicateEpisode(StoreError):
    """An episode whose id the store holds already.

    Cause: The same job was played twice into one store, as by a loop that began anew.

    Cure: Go on with `resume=True`, or take another store or run.
    """


class ContractBroken(GemError, AssertionError):
    """An environment that does not do what its spec claims.

    Cause: An environment does not do what its spec claims: another observation for the same seed, for
    instance.

    Cure: Run `gem-gym check ID`: it names the rule, what was seen and what to change. Mend the
    environment, or claim less.
    """


class IllegalMove(GemError, ValueError):
    """A move that the rules forbid; the message is shown to the agent.

    Cause: The agent's move was read, and the rules forbid it.

    Cure: Nothing is to be done in training: the agent reads the message and goes on. In code of your own,
    raise it from `play`.
    """


class ToolError(GemError, RuntimeError):
    """A tool call that failed through the agent's doing; the message is shown to the agent.

    Cause: The agent called a tool wrongly: an unknown name, bad arguments, a query that fails.

    Cure: Nothing is to be done in training: the agent reads the message and goes on. If every call fails,
    look at the tool's schema.
    """


class NoVerdict(GemError, RuntimeError):
    """Infrastructure failed, so the episode cannot be scored: it is masked, never counted as 0.

    Cause: A sandbox, tool server, grader or model server failed on its own. The agent did not cause it.

    Cure: The episode is played once more by itself. If it stays so, read `episode.error`, mend the
    server, and resume the run.
    """


class WorkerDied(NoVerdict):
    """The worker that held an environment died or hung.

    Cause: The process that held an environment was killed, often for its memory, or a server is gone, or
    a call hung beyond `call_s`.

    Cure: Look at the machine's memory and the server's log. Use fewer workers, or a longer `call_s`.
    """


class OutOfTime(NoVerdict):
    """An agent used up the seconds that it may take over an episode (`Limits.policy_s`).

    Cause: `Limits.policy_s` was too short for the model, or the endpoint is slow or limits its rate.

    Cure: Raise `policy_s`, lower the number of episodes in flight, or count the episodes with
    `on_time="scored"`.
    """


class AgentUnavailable(NoVerdict):
    """An agent can answer nobody, and asking on is no use: a key is refused, a server is gone.

    A run stops: what was finished is stored, and the rest stays unplayed.

    Cause: The endpoint refuses the key or does not know the model, the server is gone, or a model's actor
    died.

    Cure: Mend the key, the name or the server, and give the same command again: what was stored is not
    played again.
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
