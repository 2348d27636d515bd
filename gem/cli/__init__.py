"""The command ``gem-gym``.

A command is one row of `COMMANDS` and one function, or a dict of functions by subcommand; tyro turns a
function's signature and docstring into flags and help. Only the command that was asked for is imported, so
that listing ids does not load torch.
"""

from __future__ import annotations

import ast
import errno
import inspect
import io
import os
import re
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from types import SimpleNamespace
from typing import Any, NamedTuple

import tyro
from tyro.conf import FlagCreatePairsOff

import gem
from gem.cli.parse_errors import raise_parse_errors
from gem.cli.silence import Silence
from gem.cli.terms import CLOSED, FAILED, INTERRUPTED, MISUSED, PATHS  # noqa: F401  tests and scripts ask for cli.FAILED
from gem.content import printable
from gem.errors import BadArgument, GemError, did_you_mean, reason
from gem.registry import load
from gem.waiting import name_wait


def _join_indented_lines() -> None:
    """Make tyro join the lines of a help text, of a field or an argument, which 1.0.17 does not always do."""
    with suppress(ImportError, AttributeError, KeyError):  # it is private: another version may lack it
        from tyro import _fields, _strings

        join = _strings.remove_single_line_breaks
        _strings.remove_single_line_breaks = lambda helptext: join(inspect.cleandoc(helptext))
        parse = vars(_fields)["docstring_parser"].parse

        def parse_joined(text: str) -> Any:
            parsed = parse(text)
            for param in parsed.params:
                param.description = " ".join((param.description or "").split())
            return parsed

        setattr(_fields, "docstring_parser", SimpleNamespace(parse=parse_joined))  # noqa: B010 - see above


_join_indented_lines()


class Command(NamedTuple):
    """A row of the table: where the function is, and the line that ``gem-gym --help`` shows."""

    entry_point: str
    summary: str


COMMANDS: dict[str, Command] = {
    "list": Command("gem.cli.play:list_ids", "list the environments"),
    "play": Command("gem.cli.play:play", "play an episode, or watch an agent play one"),
    "check": Command("gem.cli.check:check", "check that environments keep the contract and their own claims"),
    "audit": Command("gem.cli.check:audit", "audit the rewards of environments, or a grader"),
    "demos": Command("gem.cli.demos:demos", "write expert episodes for a supervised warm-up"),
    "init": Command("gem.cli.init:init", "write a package with an environment of your own"),
    "train": Command("gem.cli.train:command", "train a language model on an environment"),
    "baseline": Command("gem.cli.baseline:baseline", "train variants on environments as a study says"),
    "oracle": Command(
        "gem.cli.oracle:oracle", "compare what training algorithms estimate with exact gradients"
    ),
    "eval": Command("gem.cli.eval:command", "measure agents on environments"),
    "compare": Command("gem.cli.compare:compare_runs", "compare two stored runs on the same tasks"),
    "power": Command("gem.cli.power:power", "estimate the smallest difference that a suite can detect"),
    "store": Command("gem.cli.store:COMMANDS", "list, show, merge and verify stored episodes"),
    "export": Command("gem.cli.export:export", "write a trained model, or stored episodes, for other tools"),
    "import": Command("gem.cli.export:import_", "read episodes from other tools' files into a store"),
    "view": Command("gem.cli.view:view", "look at episodes and training runs in the browser"),
    "report": Command("gem.cli.report:report", "write training runs as one page, or compare several"),
    "show": Command("gem.cli.replay:show", "show a stored episode in the terminal"),
    "tail": Command("gem.cli.replay:tail", "show the last episodes of a run, and new ones as they come"),
    "replay": Command("gem.cli.replay:replay", "play stored actions again, and compare the transcripts"),
    "value": Command("gem.cli.value:value", "estimate the value of each turn of a stored episode"),
    "exploitability": Command(
        "gem.cli.exploitability:exploitability", "measure what stored play loses to a best response"
    ),
    "regrade": Command("gem.cli.regrade:regrade", "score stored episodes again, by another grader"),
    "proxy": Command("gem.cli.proxy:proxy", "record the calls of agent programs, to train on them"),
    "serve": Command("gem.cli.serve:serve", "serve environments over HTTP and WebSocket"),
    "mcp": Command("gem.cli.mcp:mcp", "serve one episode to an MCP client, which plays it"),
    "serve-search": Command("gem.cli.serve:serve_search", "serve a search engine over HTTP"),
    "models": Command("gem.cli.machine:models", "list the language models that have names, and fetch them"),
    "worlds": Command("gem.cli.machine:worlds", "list the worlds of other packages, and fetch them"),
    "doctor": Command("gem.cli.machine:doctor", "show what works on this machine, and how to get the rest"),
    "sandbox": Command("gem.cli.machine:sandbox", "test and show how well programs are isolated here"),
    "completion": Command(
        "gem.cli.completion:completion", "print completion of this command for bash or zsh"
    ),
}


FIRST = {
    "gem-gym play game:GuessTheNumber-v0-easy": "play a game, in words",
    "gem-gym eval game:Mastermind-v0-easy --agent solver": "measure a solver",
    "gem-gym doctor": "show what works on this machine",
}
"""What to try first, and what it does: all works without an extra, a sandbox and the network."""

PARSES_ITSELF = ("train", "eval")
"""Commands whose defaults depend on their arguments; their functions take the arguments and program name."""

STAYS_QUIET = ("play", "view", "tail", "proxy", "mcp")
"""Commands that wait for people, or for requests."""

REPEATS = ("eval",)
"""Commands with flags that take one value and may be repeated."""

LONGEST_LINE = 1500
"""The most characters of a line of an error."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    sys.stdout = sys.stdout or _open_nothing()  # closed by the caller, who wants none
    sys.stderr = sys.stderr or _open_nothing()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What a model wrote may not fit the terminal's encoding; that must not end the program.
            stream.reconfigure(errors="backslashreplace")
    if args is None:  # a program of its own
        warnings.showwarning = _show_warning
    try:
        code = _run(list(sys.argv[1:] if args is None else args))
        sys.stdout.flush()
    except GemError as error:
        print(f"{type(error).__name__}: {_crop_lines(printable(str(error)))}", file=sys.stderr)
        return MISUSED
    except OSError as error:  # BrokenPipeError is one too
        if isinstance(error, BrokenPipeError) or error.errno == errno.ENOSPC:  # `gem-gym list | head`
            if error.errno == errno.ENOSPC:
                where = _crop_lines(printable(str(error.filename or "the output")))
                print(f"{where} cannot be written: {reason(error)}.", file=sys.stderr)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return CLOSED if isinstance(error, BrokenPipeError) else MISUSED
        if error.filename is None:
            raise
        where = _crop_lines(printable(str(error.filename)))
        fault = f"cannot be read or written: {reason(error)}. Name another file or folder."
        print(f"{type(error).__name__}: {where} {fault}", file=sys.stderr)
        return MISUSED
    except KeyboardInterrupt as stop:
        notes = getattr(stop, "__notes__", ())
        print("\nstopped by Ctrl-C", *map(printable, notes), sep="; ", file=sys.stderr)
        return INTERRUPTED
    return code


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Print a warning without the line of gem's source that Python shows."""
    print(f"warning: {_crop_lines(printable(str(message)))}", file=sys.stderr)


def _crop_lines(text: str) -> str:
    """Return the text of an error with the middle of very long lines left out: a file may name anything."""
    half = LONGEST_LINE // 2
    lines = text.split("\n")
    return "\n".join(line if len(line) <= 2 * half else f"{line[:half]} ... {line[-half:]}" for line in lines)


def _open_nothing() -> io.TextIOWrapper:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _run(args: list[str]) -> int:
    if not args:
        print(_show_first())
        return 0
    name, *rest = args
    if name == "help" and rest:  # `gem-gym help eval`, as git has it
        name, *rest = *rest, "--help"
    if name in ("-h", "--help", "help"):
        print(_help())
        return 0
    if name in ("-V", "--version"):
        print(f"gem-gym {gem.__version__}")
        return 0
    if name not in COMMANDS:
        raise BadArgument(f"no command {name!r}.{did_you_mean(name, COMMANDS)} `gem-gym --help` shows all.")
    if name not in REPEATS:
        _refuse_repeated(rest)
    prog = f"gem-gym {name}"
    watch = nullcontext() if name in STAYS_QUIET else Silence("" if name.startswith("serve") else prog)
    with watch, PATHS:
        with name_wait(f"{prog} to be loaded"):
            command: Any = load(COMMANDS[name].entry_point)
        if isinstance(command, dict):
            _check_part(prog, rest[0] if rest else "", command)
        whole = f"{name} {rest[0]}" if isinstance(command, dict) and rest[0] in command else name
        with raise_parse_errors(name, rest, list_flags, whole):
            return _call(name, command, rest, prog)


def _call(name: str, command: Any, rest: list[str], prog: str) -> int:
    if name in PARSES_ITSELF:
        return command(rest, prog) or 0
    run = tyro.extras.subcommand_cli_from_dict if isinstance(command, dict) else tyro.cli
    return run(command, prog=prog, args=rest, config=(FlagCreatePairsOff,)) or 0


def _check_part(prog: str, part: str, known: Collection[str]) -> None:
    """Check the word after a command that has commands of its own.

    Raises:
        BadArgument: it names the known ones.
    """
    if part not in (*known, "-h", "--help", "--tyro-print-completion"):
        given = repr(part) if part else "missing"
        accepted = f"accepted: {', '.join(known)}."
        raise BadArgument(f"the word after `{prog}` is {given}; {accepted}{did_you_mean(part, known)}")


def _refuse_repeated(args: Sequence[str]) -> None:
    """Refuse a flag that is given twice: argparse would drop the values of the first without a word.

    Raises:
        BadArgument: it names the flag.
    """
    flags: set[str] = set()
    for flag in (arg.partition("=")[0].replace("_", "-") for arg in args if arg.startswith("--")):
        if flag in flags - {"--config", "--columns"}:
            raise BadArgument(f"{flag} is given twice; give it once, with all of its values after it.")
        flags.add(flag)


def _show_first() -> str:
    width = max(map(len, FIRST))
    rows = [f"  {command:<{width}}  {summary}" for command, summary in FIRST.items()]
    title, last = "A gym for LLM agents. Three things to try:", "`gem-gym help` lists all commands."
    return "\n".join([title, "", *rows, "", last])


def _help() -> str:
    width = max(map(len, COMMANDS))
    rows = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: gem-gym COMMAND [...]",
            "",
            "A gym for LLM agents.",
            "",
            *rows,
            "",
            "`gem-gym help COMMAND` explains a command; `gem-gym --version` prints gem's version.",
        ]
    )


def list_flags(name: str) -> list[str]:
    """Return the flags of a command, those of its subcommands too."""
    return [flag for option in list_options(read_spec(name)) for flag in option["flags"]]


def read_spec(name: str) -> dict[str, Any]:
    """Return what tyro knows of a command, from the script that it would print for this command alone."""
    text = io.StringIO()
    with redirect_stdout(text), suppress(SystemExit):
        main([name, "--tyro-print-completion", "bash"])
    spec = re.search(r"^COMPLETION_SPEC = (.*)$", text.getvalue(), re.MULTILINE)
    return ast.literal_eval(spec[1]) if spec else {}


def list_options(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the options of what `read_spec` returns, those of its subcommands too."""
    yield from spec.get("options", ())
    for part in spec.get("subcommands", {}).values():
        yield from list_options(part)
