"""The error classes: every error that gem raises on purpose.

Each class inherits from GemError and from the matching builtin, so ``except ValueError`` keeps working. Each
can be pickled, so that it can pass between processes. To add one: subclass the nearest GemError and the
builtin, let the constructor take one message only, write Cause and Cure in its docstring (the troubleshooting
page is made from them), and export it here.

::

    GemError
     |- for the user: the command line shows the message alone, without a traceback
     |   |- UnknownEnv        ValueError           no environment or wrapper has that name
     |   |- DuplicateEnv      ValueError           the id is taken
     |   |- BadArgument       ValueError           a value out of range or of the wrong shape
     |   |   '- UnknownArgument  TypeError         a keyword that is not accepted
     |   |- BadAction         TypeError            an action that is not text
     |   |- MissingExtra      ImportError          an optional package is missing; has the pip command
     |   |- MissingData       FileNotFoundError    a data set is neither local nor reachable
     |   |- ResetNeeded       RuntimeError         step before reset
     |   |- EpisodeOver       RuntimeError         step after the end
     |   |- EnvClosed         RuntimeError         any use after close
     |   |- CannotFork        NotImplementedError  an environment whose state cannot be copied
     |   |- NoSolver          NotImplementedError  the environment has no solve() or no random actor
     |   |- SchemaMismatch    ValueError           a file written under another schema or vocabulary
     |   |- StoreError        OSError              a store or checkpoint cannot be written or read
     |   |   '- DuplicateEpisode  OSError          the store already has an episode with that id
     |   '- ContractBroken    AssertionError       an environment breaks the contract
     |- for the agent: the message becomes observation text, the episode goes on
     |   |- IllegalMove       ValueError
     |   '- ToolError         RuntimeError
     '- for the outcome: something around the task failed, the episode gets no verdict
         '- NoVerdict         RuntimeError         a sandbox, tool server or grader failed on its own
             |- WorkerDied                         the process or actor that held an environment is gone
             |- OutOfTime                          the agent's time limit is used up
             '- AgentUnavailable                   the agent can answer no request: the run stops
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any


class GemError(Exception):
    """Root of every error that gem raises on purpose."""


class UnknownEnv(GemError, ValueError):
    """A name that is not registered.

    Cause: The id or wrapper is misspelt, or the package that registers it is not installed.

    Cure: Use a name that the message suggests, or one that `gem-gym list` shows. If a package has it, install
    the package; its entry point in the group `gem.envs` registers its ids.
    """


class DuplicateEnv(GemError, ValueError):
    """An id that is already registered.

    Cause: Two different environments were registered under one id, for example by two packages.

    Cure: Choose another id, with your own family. In a notebook, register once, in a separate cell.
    """


class BadArgument(GemError, ValueError):
    """An argument with a value that is not accepted.

    Cause: A value is out of range, has the wrong shape, or contradicts another argument.

    Cure: The message names the argument, the value and what is accepted. Pass one of these.
    """


class UnknownArgument(BadArgument, TypeError):
    """A keyword that the called function or class does not accept.

    Cause: A keyword is misspelt, or belongs to another environment, wrapper or version.

    Cure: The message lists the accepted keywords. For an environment, its page has them under Ids.
    """


class BadAction(GemError, TypeError):
    """An action that does not have the type that the environment accepts.

    Cause: `step` got something that is not text, for example a list of tokens or a whole `Reply`.

    Cure: Pass the text that the agent wrote: for a `Reply`, `reply.text`. Environments with several agents
    take a dict by agent.
    """


class MissingExtra(GemError, ImportError):
    """An optional dependency that is not installed; the message has the pip command.

    Cause: A feature needs a package that the base installation does not include.

    Cure: Run the pip command in the message, which fits how gem was installed. `gem-gym doctor`
    lists what is missing.
    """


class MissingData(GemError, FileNotFoundError):
    """A data set that is neither local nor reachable; the message says how to supply it.

    Cause: The data set is neither in `GEM_DATA` nor in a cache, and it could not be downloaded; or a file
    has moved.

    Cure: Set `GEM_DATA` to a folder of data sets, or pass your own rows or file. The message names both.
    """


class ResetNeeded(GemError, RuntimeError):
    """step() before reset().

    Cause: `step` was called on a new environment, or on one that was restored without a state.

    Cure: Call `env.reset(seed=...)` before the first `step`.
    """


class EpisodeOver(GemError, RuntimeError):
    """step() after the episode ended.

    Cause: The last step returned `terminated` or `truncated`, and the loop went on.

    Cure: Leave the loop at the end of the episode, or call `reset`. A vector environment resets by itself.
    """


class EnvClosed(GemError, RuntimeError):
    """Use of an environment after close().

    Cause: The environment, sandbox or store was closed, often by leaving its `with` block.

    Cure: Use it inside the block, or make another one.
    """


class CannotFork(GemError, NotImplementedError):
    """fork() of an environment whose state cannot be copied.

    Cause: The state is outside this process (a live terminal, a session on a server), or it cannot be
    repeated, or an attribute (a lambda, a weak reference) would act on another environment from the copy.

    Cure: Check `gem.spec(id).forkable` first. Use an environment that can be forked, or play the actions
    again on a new one. In an environment of your own, keep methods and data in place of such an attribute.
    """


class NoSolver(GemError, NotImplementedError):
    """The environment offers no solver or no random actor.

    Cause: The environment has no expert, no random actor, or no instance yet.

    Cure: `gem.spec(id).solver` and `gem-gym list` show which solver exists. Choose another agent, or call
    `reset` first.
    """


class SchemaMismatch(GemError, ValueError):
    """A stored file of another schema, vocabulary or configuration.

    Cause: The file was written by another version of gem, with another tokenizer, or with other settings.

    Cure: Read it with the version or the settings that wrote it, or write to another path. The message names
    what was found and what was expected.
    """


class StoreError(GemError, OSError):
    """A store or checkpoint that cannot be written or read.

    Cause: The disk is full, a folder is not yours, the file is damaged, or another process holds its
    lock.

    Cure: Free space, choose another folder, or end the other process. What was stored before stays
    readable.
    """


class DuplicateEpisode(StoreError):
    """An episode whose id the store already has.

    Cause: The same job was played twice into one store, for example by a script that was started again.

    Cure: Continue with `resume=True`, or use another store or run.
    """


class ContractBroken(GemError, AssertionError):
    """An environment that does not do what its spec claims.

    Cause: An environment does not do what its spec claims. For example, one seed gives two different
    observations.

    Cure: Run `gem-gym check ID`: it names the rule, what was seen and what to change. Fix the
    environment, or claim less in its spec.
    """


class IllegalMove(GemError, ValueError):
    """A move that the rules forbid; the message is shown to the agent.

    Cause: The agent's move was read, and the rules forbid it.

    Cure: In training, do nothing: the agent reads the message and continues. In your own code, raise it
    from `play`.
    """


class ToolError(GemError, RuntimeError):
    """A tool call that failed because of the agent; the message is shown to the agent.

    Cause: The agent called a tool wrongly: an unknown name, bad arguments, a query that fails.

    Cure: In training, do nothing: the agent reads the message and continues. If every call fails, check the
    tool's schema.
    """


class NoVerdict(GemError, RuntimeError):
    """A failure of infrastructure: the episode cannot be scored; it is masked, never counted as 0.

    Cause: A sandbox, tool server, grader or model server failed on its own. The agent did not cause it.

    Cure: gem plays the episode once more automatically. If that fails too, read `episode.error`, fix the
    server, and resume the run.
    """

    refused: bool = False
    """Whether a server refused this one request, for what is in it or for how the server is set up."""

    usage: Mapping[str, dict[str, int]] = MappingProxyType({})
    """Token counts of answers that were discarded, by model and name; see `gem.record.Failure`."""


class WorkerDied(NoVerdict):
    """The worker that ran an environment died or hung.

    Cause: The process that ran an environment was killed (often because memory ran out), a server is gone,
    or a call took longer than `call_s`.

    Cure: Check the machine's memory and the server's log. Use fewer workers, or a longer `call_s`.
    """


class OutOfTime(NoVerdict):
    """An agent used up its seconds for an episode (`Limits.policy_s`).

    Cause: `Limits.policy_s` was too short for the model, or the endpoint is slow or limits the request rate.

    Cure: Raise `policy_s`, run fewer episodes at the same time, or score these episodes with
    `on_time="scored"`.
    """


class AgentUnavailable(NoVerdict):
    """An agent that can answer no request, now or later: a key is refused, a server is gone.

    The run stops: finished episodes are stored, the others are not played.

    Cause: The endpoint refuses the key or does not know the model, the server is gone, or a model's actor
    died.

    Cure: Fix the key, the name or the server, and run the same command again: stored episodes are not
    played again.
    """


LONGEST_S = 1e9
"""The most seconds of a limit, thirty years; the locks and timers of a system take no more than a few times
that."""


@contextmanager
def name_source(source: object) -> Iterator[None]:
    """Put the file, whose content a block acts on, in front of errors about it that do not begin with it."""
    try:
        yield
    except (BadArgument, UnknownEnv) as error:
        if not str(error).startswith(str(source)):
            error.args = (f"{source}: {error}",)
        raise


def check_least(name: str, value: Any, least: int = 1) -> None:
    """Refuse what is no whole number of `least` or more; None stands for a number that was not given.

    Raises:
        BadArgument: with the name, the value and what is accepted.
    """
    if value is not None:
        check_count(name, value, least)


MOST = 2**63 - 1
"""The largest count: the longest that a list or a range may be."""


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Refuse what is no whole number of `least` or more, None too.

    Raises:
        BadArgument: with the name, the value and what is accepted.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if whole and value > MOST:
        raise BadArgument(f"{name} is {hex(value)[:20]}...; accepted: {least} to {MOST}.")
    right = whole and value >= least
    check_argument(name, value, right, f"{least} or more{'' if whole else ', a whole number'}")


def check_argument(name: str, value: object, right: bool, accepted: str) -> None:
    """Check an argument: `right` says whether `value` is one of those that the text `accepted` describes.

    Raises:
        BadArgument: if it is not, with the name, the value and what is accepted.
    """
    if not right:
        raise BadArgument(f"{name} is {value!r}; accepted: {accepted}.")


def check_seconds(name: str, value: Any, optional: bool = True) -> None:
    """Refuse seconds that are not above 0, or longer than a system can wait.

    Unless the seconds are not `optional`, None stands for no limit.

    Raises:
        BadArgument: with the name, the number and what is accepted.
    """
    right = optional if value is None else isinstance(value, Real) and 0 < float(value) <= LONGEST_S
    check_argument(name, value, right, f"seconds above 0, at most {LONGEST_S:,.0f}")


def refuse_first(*faults: tuple[object, str]) -> None:
    """Refuse the first of several faults that is there; each is its condition and the message.

    Raises:
        BadArgument: with that message.
    """
    for is_there, message in faults:
        if is_there:
            raise BadArgument(message)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x' or 'y'?"`` for the known names nearest to `name`, or ``""``.

    If none is near, for up to three that begin with it.
    """
    import difflib  # here, because `import gem` is to be light and few names are misspelt

    name, names = str(name), list(map(str, known))
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    close = close or [longer for longer in names if len(name) > 2 and longer.startswith(name)][:3]
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def missing_extra(what: str, package: str, extra: str) -> MissingExtra:
    """Build the error for a missing optional package, with the pip command that installs it."""
    return MissingExtra(f"{what} needs the {package} package: {install_command(extra)}")


@contextmanager
def needs_extra(what: str, package: str, extra: str) -> Iterator[None]:
    """Import optional packages in a block.

    Args:
        what: the thing that needs them, as the subject of the error.
        package: the pip package that is most likely missing.
        extra: the extra of gem that installs them.

    Raises:
        MissingExtra: when the block raises ImportError.
    """
    try:
        yield
    except ImportError as error:
        raise missing_extra(what, package, extra) from error


def install_command(*extras: str) -> str:
    """Return the shell command that adds extras to this installation of gem, wherever it came from.

    A checkout is installed again, in place; a wheel, a folder or a repository from where it was; else by
    name, from a package index.
    """
    from pathlib import Path  # here and below, because `import gem` is to be light

    wanted = f"[{','.join(extras)}]"
    source, editable, installed = _origin()
    checkout = Path(__file__).parents[1]
    if editable or (not installed and (checkout / "pyproject.toml").is_file()):
        what = f"-e {shlex.quote(_shorter(str(checkout)) + wanted)}"
    elif source.startswith("file://"):
        from urllib.request import url2pathname

        path = url2pathname(source.removeprefix("file://"))
        what = shlex.quote(_shorter(path) + wanted if Path(path).exists() else f"gem-gym{wanted}")
    else:
        what = shlex.quote(f"gem-gym{wanted} @ {source}" if source else f"gem-gym{wanted}")
    return pip_command(what)


def pip_command(what: str) -> str:
    """Return the shell command that installs for this interpreter; `what` is quoted where it has to be."""
    from importlib.util import find_spec

    python = shlex.quote(_shorter(sys.executable or "python"))
    return (
        f"{python} -m pip install {what}" if find_spec("pip") else f"uv pip install --python {python} {what}"
    )


def _origin() -> tuple[str, bool, bool]:
    """Return the address that gem was installed from, whether in place, and whether it was installed."""
    import json
    from importlib import metadata

    try:
        text = metadata.distribution("gem-gym").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return "", False, False
    where = json.loads(text) if text else {}
    vcs = where.get("vcs_info", {})
    source = f"{vcs['vcs']}+{where['url']}@{vcs['commit_id']}" if vcs else where.get("url", "")
    return source, bool(where.get("dir_info", {}).get("editable")), True


def _shorter(path: str) -> str:
    """Return a path as it is written in the working folder, if it lies in it."""
    here = os.path.join(os.getcwd(), "")
    return "." if path == here[:-1] else path.removeprefix(here)


def reason(error: Exception) -> str:
    """Return an error's text without its number and full stop, as "Address already in use"."""
    return (getattr(error, "strerror", None) or str(error)).rstrip(".")


def replace_surrogates(text: str) -> str:
    """Return text that UTF-8 can hold: text of a model or a program may contain half of a surrogate pair."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def text_of_error(error: BaseException) -> str:
    """Return the text of an error; an error of another package may fail even in ``__str__``."""
    try:
        return str(error)
    except Exception as worse:
        return f"{type(error).__name__}, whose text cannot be read: {type(worse).__name__}"


def describe_place(error: BaseException) -> str:
    """Return the place of an error in the user's own code, as `` (own.py, line 3, in ask)``; empty if none.

    That is the deepest frame outside gem, the standard library and installed packages.
    """
    others = (os.path.dirname(__file__) + os.sep, os.path.dirname(os.__file__) + os.sep, "<")
    place, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(others) and "site-packages" not in code.co_filename:
            place = f" ({os.path.basename(code.co_filename)}, line {trace.tb_lineno}, in {code.co_name})"
        trace = trace.tb_next
    return place
