"""What a file may name: one rule for stores, suites, studies, configs and every other file that gem reads.

A file may come from somebody else. It may name, without being trusted:

- an id that is registered in this process, with plain values as keywords; that of a folder on this machine
  (``harbor:PATH``) too, because what is in the folder runs only in the sandbox, or in its container; but no
  package or folder whose code runs outside of it (`CODE`);
- what is in a file that this user named before, by the digest of its content (`gem.source_files`);
- a wrapper of the wrapper factory, and the classes in `WRAPPERS`;
- the classes in `MADE`, which are made from plain values, and the functions in `CALLED`;
- an agent on this machine: a model, or one of `gem.agent_names.AGENTS` that needs no trust;
- an address on the loopback interface, or of a server or judge that this user named before, or with which
  this user played the same environment: any other would get prompts and answers, and the user's keys
  (`check_address`).

These start no program outside the sandbox, write no file, and send nothing to a server that the file names.
Everything else is refused with its name, before it is imported, until the user adds ``--trust`` (in Python
``trust=True``).

What a command line names, or a program passes as an object, an id or a `TaskRef` of its own, is the user's
and is not checked here. The boundary is the decoding: a decoder of gem marks the tasks that it reads as
`TaskRef.foreign`, and `gem.registry.accept_task` checks what is marked, once, in the process that read it.
Worker processes and Ray players get what was accepted, and are not asked again.

The token of GEM_SERVE_TOKEN goes only to a server that this user named, however much a file is trusted; see
`own_token`.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from typing import Any, NoReturn
from urllib.parse import SplitResult, urlsplit

from gem.agent_names import AGENTS
from gem.errors import BadArgument
from gem.naming import entry_point_of, is_fixed, is_path, name_in_file, named_module
from gem.source_files import named_before, read_source, remember_name, source_of
from gem.specs import EnvSpec, TaskRef

MADE = frozenset(
    {
        *("builtins:float", "builtins:int", "pathlib:Path"),
        *("gem.graders.cascade:CascadeGrader", "gem.graders.code:CodeGrader"),
        *("gem.graders.functions:FunctionGrader", "gem.graders.math:MathGrader"),
        *("gem.graders.rubric:Rubric", "gem.graders.text:TextGrader"),
        *("gem.tools.python_code_tool:PythonCodeTool", "gem.tools.shell_tool:ShellTool"),
        *("gem.graders.code_tests:CodeTests", "gem.history:HistoryPolicy", "gem.sandbox.base:Budget"),
        *("gem.record:Limits", "gem.record:StopReason", "gem.record:Verdict"),
    }
)
"""The classes of which a file may describe an object, as ``$make``. Their constructors start nothing."""

JUDGE = "gem.graders.functions:JudgeByName"
"""The class of a judge by name. It asks a server, so the name of the judge decides; see `check_values`."""

CALLED = frozenset(
    {
        *("builtins:abs", "builtins:bool", "builtins:float", "builtins:int", "builtins:len", "builtins:max"),
        *("builtins:min", "builtins:repr", "builtins:round", "builtins:sorted", "builtins:str"),
        *("builtins:sum", "math:ceil", "math:exp", "math:floor", "math:log", "math:sqrt", "math:tanh"),
        *("json:dumps", "json:loads", "statistics:mean", "statistics:median", "string:capwords"),
        *("textwrap:dedent", "unicodedata:normalize"),
    }
)
"""The functions that a file may pass to an environment or wrapper, as ``$callable``. They only compute."""

WRAPPERS = frozenset(
    {
        "gem.core:EnvWrapper",
        "gem.envs.seats.seat_env:SeatEnv",
        "gem.tools.tool_env_wrapper:ToolEnvWrapper",
        "gem.wrappers.episode_tracking_wrapper:EpisodeTrackingWrapper",
        "gem.wrappers.observation_wrapper:ObservationWrapper",
        "gem.wrappers.time_limit:TimeLimit",
        "gem.wrappers.transform:SignedReward",
        "gem.wrappers.transform:TransformAction",
        "gem.wrappers.transform:TransformReward",
    }
)
"""The wrappers that a file may name by their class, besides those of the wrapper factory."""

ENVIRONMENTS = frozenset({"gem.testing.doubles:EchoEnv"})
"""The environments that a file may name by their class, besides the entry points of registered ids."""

CODE = re.compile(r"verifiers:|browser:|openenv:(?!https?://)")
"""Ids of installed packages and folders whose code runs outside the sandbox (that of a page in Chromium)."""

SERVICES = frozenset({"google", "serpapi"})
"""Search services that have a name instead of an address; they get the user's key."""

SECRETS = frozenset({"auth", "dsn", "headers", "token"})
"""Keywords with which an environment signs in to a server. gem never writes one into a file."""


def check_task(task: TaskRef, registered: EnvSpec | None, entry_points: Container[str]) -> None:
    """Refuse a task that names more than a file may name.

    Args:
        task: the task, as it was read.
        registered: the spec that its id has in this process; None: the id is not registered.
        entry_points: those of the registered ids.

    Raises:
        BadArgument: with what the task names.
    """
    if CODE.match(task.spec):
        refuse("the task's environment is a package, whose code would run:", task.spec)
    check_address(task.spec)
    if registered is None:
        entry_point = task.spec if task.entry_point is None else task.entry_point
        if entry_point not in ENVIRONMENTS and not is_own(entry_point) and entry_point not in entry_points:
            refuse(f"the task of {task.spec!r:.80} is no registered environment: it is", entry_point)
    else:
        _check_entry(task, registered)
    for wrapper in task.wrappers:
        check_wrapper(wrapper.name)
    for owner, values in _values_of(task):
        _check_logins(values)
        check_values(values)
        for text in _texts(values):
            if _address(text) and not named_before("value", owner, text):
                check_address(text)
        if values.get("corpus") in SERVICES:
            refuse("a task would send searches, with your key, to", values["corpus"])


def _check_logins(values: Mapping[str, Any]) -> None:
    """Refuse keywords with which an environment would sign in to a server."""
    for name in SECRETS & values.keys():
        refuse("an environment gets a server to sign in to, with the keyword", name)


def _check_entry(task: TaskRef, registered: EnvSpec) -> None:
    """Check what a task says of a registered id; the id decides, not the recorded entry point."""
    here = registered.entry_point
    if isinstance(here, str) and task.entry_point is not None:
        modules = {str(name).partition(":")[0] for name in (here, task.entry_point)}
        if len(modules) > 1:  # the record may name the class where the id names a function
            raise BadArgument(
                f"the record says that {task.spec!r} is {task.entry_point!r:.80}; here it is {here!r}."
            )
    named = registered.kwargs.get("name")
    if task.kwargs.get("name", named) != named:  # of a family: another name would be another id
        refuse(f"the task of {task.spec} is to make", task.kwargs["name"])


def check_wrapper(name: str) -> None:
    """Refuse a wrapper that is not of the wrapper factory or of `WRAPPERS`.

    Raises:
        BadArgument: with its name.
    """
    if ":" in name and name not in WRAPPERS and not is_own(name):
        refuse("the file has a wrapper of its own:", name)


def is_own(name: object) -> bool:
    """Return whether this user named it before, or the file that defines it, with the content it has now.

    What such a file only imports is not meant: ``relay.py@DIGEST:os.system`` is not in relay.py.
    """
    if not isinstance(name, str):
        return False
    place = entry_point_of(name) or name
    source = source_of(place)
    if source is None:
        return named_module(name)
    module, _, attribute = place.partition(":")
    file = module.partition(".")[2].replace(".", "/")
    return attribute in _defined_names(source.files.get(f"{file}.py", ""))


@functools.cache
def _defined_names(text: str) -> frozenset[str]:
    """Return the names that the top level of a file defines, without those that it imports."""
    names: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(names)


def check_known_file(name: str) -> None:
    """Refuse a name in a file that this user never named, if it is of the form ``file.py@DIGEST:Attribute``.

    Raises:
        BadArgument: with the name.
    """
    if is_fixed(name) and not is_own(name):
        refuse("the file names code in a file that was not named here before, or has changed since:", name)


_NAME = re.compile(r"[^\s:]+:[^\W\d][\w.]*|.*\.py(@\w+)?(:.*)?", re.DOTALL)
"""``module:Attribute`` and ``path/file.py:Attribute``, and what is read as one of them."""
AGENT_KEYS = ("agent", "name", "names", "opponent", "others")
"""The keys under which a file names agents."""
MODELS = {
    **dict.fromkeys(
        AGENT_KEYS,
        tuple(name for name, agent in AGENTS.items() if ":" in agent.form and not agent.needs_trust),
    ),
    **dict.fromkeys(("grader", "judge"), ("judge",)),
    "sampler": ("sglang", "vllm"),
}
"""The prefixes of the names of models and servers, by the key where they are no modules."""
SERVERS = frozenset(prefix for prefixes in MODELS.values() for prefix in prefixes)


def check_settings(
    settings: Any,
    is_prefix: Callable[[str], bool],
    prose: Container[str] = (),
    folder: str | os.PathLike[str] = "",
) -> None:
    """Refuse the settings of a file if one of their texts names what a file may not name.

    The key above a text says what it names: an environment, wrappers, an agent, a cluster. Under any other
    key, a text that looks like ``module:Attribute`` or ``file.py:Attribute`` is refused.

    Args:
        settings: tables, lists and values, as TOML and JSON have them.
        is_prefix: tells whether registered ids begin as this text does; it is then looked up, not loaded.
        prose: keys whose texts are for readers; a table under one is checked.
        folder: the folder that relative paths start from.

    Raises:
        BadArgument: with the first such text.
    """
    pending: list[tuple[str, Any]] = [("", settings)]
    while pending:
        key, value = pending.pop()
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):  # tables may be JSON in quotes
            with suppress(ValueError, RecursionError):
                value = json.loads(value)
        check_values(value)
        if isinstance(value, Mapping):
            _check_logins(value)
            named = [(n, each) for n, each in value.items() if n not in prose or isinstance(each, Mapping)]
            pending += [(str(name), each) for name, each in named]
        elif isinstance(value, list | tuple):
            pending += [(key, each) for each in value]
        elif isinstance(value, str):
            _check_text(key, _fix_path(value, folder), is_prefix)


def _fix_path(text: str, folder: str | os.PathLike[str]) -> str:
    """Return ``file.py@DIGEST:Attribute`` for the path of a file that is there; execute nothing."""
    place, _, attribute = text.rpartition(":")
    if not place or not is_path(text):
        return text
    try:
        source = read_source(os.path.join(folder, os.path.expanduser(place)))
    except BadArgument:
        return text
    return f"{source.main}@{source.digest}:{attribute}"


def _check_text(key: str, text: str, is_prefix: Callable[[str], bool]) -> None:
    if key == "ray":
        if text not in ("", "auto", "local") and text.rpartition(":")[0] not in LOOPBACK:
            refuse("the file names a cluster, which would get this program's objects:", text)
        return
    if key == "wrappers":
        check_wrapper(text)
        return
    if key == "grader" and text.endswith(".toml"):
        refuse("the file gives a grader that may name code,", text)
    if CODE.match(text):
        refuse(f"the file gives {key or 'a setting'} as a package, whose code would run:", text)
    prefix = text.partition(":")[0]
    of_model = key in MODELS or prefix in SERVERS  # whose name may have blanks
    check_address("".join(text.split()) if of_model else text)
    if key in ("id", "ids", "env", "transfer") and is_prefix(text):
        return
    if key == "host" and ":" in text:
        kind, _, address = text.partition(":")
        if kind != "remote":
            refuse("the file has a host of its own:", text)
        if address and not _ON_LOOPBACK.fullmatch(address) and not is_own_server(text):
            refuse(_SERVER, text)  # whatever it looks like: it is connected to
    if key in AGENT_KEYS and prefix in AGENTS and AGENTS[prefix].needs_trust:
        refuse(f"the file gives {key} as", text)
    if (
        prefix not in MODELS.get(key, ())
        and _NAME.fullmatch(text)
        and text not in WRAPPERS
        and not is_own(text)
    ):
        refuse(f"the file gives {key or 'a setting'} as", text)


def check_values(value: Any) -> None:
    """Refuse values of which one names a class or function that a file may not name.

    Raises:
        BadArgument: with the name.
    """
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, Mapping):
            for key, allowed in (("$make", MADE), ("$callable", CALLED)):
                name = each.get(key)
                if key in each and name == JUDGE:
                    _check_judge(each)
                elif key in each and not (
                    isinstance(name, str) and (name in allowed or _is_own_value(key, name))
                ):
                    refuse("an argument names code:", name)
            pending += each.values()
        elif isinstance(each, list | tuple):
            pending += each


def _check_judge(made: Mapping[str, Any]) -> None:
    kwargs = made.get("kwargs")
    model = kwargs.get("model") if isinstance(kwargs, Mapping) else None
    if made.get("args") or not isinstance(model, str) or not named_before("judge", model):
        refuse(
            "the task's answers would go, with your key, to a judge that you did not name here before "
            "(--grader judge:MODEL[@URL] names one):",
            model,
        )


def _is_own_value(key: str, name: str) -> bool:
    """Return whether a class is this user's; a function must have been named itself, as it gets actions."""
    return is_own(name) if key == "$make" else named_before(name_in_file(name)) or named_module(name)


LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ON_LOOPBACK = re.compile(
    r"https?://(127\.0\.0\.1|localhost|\[::1\])(:[0-9]*)?([/?#].*)?", re.IGNORECASE | re.DOTALL
)
"""Stricter than parsers of addresses, which differ about what is odd: ``http://127.0.0.1\\@evil.example``."""
_ORIGIN = re.compile(r"https?://[^\s/\\?#]+(?=[/?#]|\Z)")
_SERVER = "the file names a server, which would get prompts and keys, and you did not name here:"


def check_address(name: str) -> None:
    """Refuse a text that is the address of a server, but not of this machine's or one that this user named.

    Raises:
        BadArgument: with the text. The server would get prompts, answers and keys.
    """
    address = _address(name)
    if address is None or _ON_LOOPBACK.fullmatch(address) or is_own_server(name):
        return
    if not named_before("judge", name.removeprefix("judge:")):
        refuse(_SERVER, name)


_FROM_FILES: set[str] = set()
"""The texts with an address that files have named in this process, also those that are trusted."""


def note_addresses(settings: Any) -> None:
    """Remember the addresses of a file in this process, so that `name_server` takes none for this user's."""
    _FROM_FILES.update(text for text in _texts(settings) if "://" in text)


def name_server(name: str) -> None:
    """Remember that this user named a server, as ``remote:http://host:port/ID``; other names are ignored.

    An address that a file named in this process is the file's, not the user's.
    """
    origin = _origin(name) if name.startswith(("remote:", "openenv:")) else None
    if origin and not any(origin in text for text in _FROM_FILES) and not named_before("server", origin):
        remember_name("server", origin)


def name_values(task: TaskRef) -> None:
    """Remember the addresses among the values of a task that this user made, for this environment or wrapper.

    An address that a file named in this process is the file's, not the user's.
    """
    for owner, values in _values_of(task):
        for text in _texts(values):
            address = _address(text)
            if not address or any(address in noted for noted in _FROM_FILES):
                continue
            if not named_before("value", owner, text):
                remember_name("value", owner, text)


def _values_of(task: TaskRef) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the names of a task's environment and wrappers, each with its keywords."""
    yield task.spec, task.kwargs
    for wrapper in task.wrappers:
        yield wrapper.name, wrapper.kwargs


def is_own_server(name: str) -> bool:
    """Return whether this user named the server of an address before, or has it in GEM_SERVE_URL."""
    origin = _origin(name)
    if origin is None:
        return False
    return origin == _origin(os.environ.get("GEM_SERVE_URL", "")) or named_before("server", origin)


def own_token(address: str) -> str:
    """Return the token of GEM_SERVE_TOKEN for a server that this user named; "" for any other."""
    return os.environ.get("GEM_SERVE_TOKEN", "") if is_own_server(address) else ""


def split_address(name: str) -> SplitResult:
    """Split the address of a server, as what connects to a server does.

    Raises:
        ValueError: for an invalid one, also with blanks or line feeds: Python drops some of them, so that
            `check_address` would have read another text than what connects.
    """
    if re.search(r"[\s\x00-\x1f\x7f]", name):
        raise ValueError("an address with a blank")
    return urlsplit(name)


def _origin(name: str) -> str | None:
    """Return the scheme, host and port of an address, behind a prefix or not."""
    origin = _ORIGIN.match(_address(name) or "")
    return origin and origin[0]


def _address(name: str) -> str | None:
    """Return the address in the first word of a text: ``remote:http://...``, ``openai:MODEL@http://...``."""
    before, slashes, rest = name.lstrip().partition("://")
    if not slashes or len(before.split()) > 1:
        return None
    return re.split("[^A-Za-z0-9+.-]", before)[-1] + slashes + rest


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in tables and lists."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, Mapping):
            pending += each.values()
        elif isinstance(each, list | tuple):
            pending += each


def refuse(what: str, name: Any) -> NoReturn:
    """Raise the error for what a file may not name; the sentence ends with the name.

    Raises:
        BadArgument: always.
    """
    raise BadArgument(
        f"{what} {name!r:.120}. A file may name registered environments, gem's wrappers, and the classes and "
        "functions that gem.trust lists. If you trust whoever wrote the file, add --trust (in Python: "
        "trust=True)."
    )
