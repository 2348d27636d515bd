"""Errors of tyro's parser as `BadArgument`: one sentence, as gem's own errors are, in place of a box."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gem.errors import BadArgument, did_you_mean

ListFlags = Callable[[str], list[str]]
"""A function that returns the flags of a command; it is only called where arguments are wrong."""

READ = {
    "invalid literal for int() with base 10: ": "a whole number",
    "could not convert string to float: ": "a number",
    "Exceeds the limit ": "a whole number of fewer digits",
    "blank path: ": "the path of a file or folder",
}
"""How errors for a text that is no number or path begin, and what is accepted."""


@contextmanager
def raise_parse_errors(name: str, args: Sequence[str], list_flags: ListFlags, whole: str) -> Iterator[None]:
    """Make tyro raise `BadArgument` in a block, for the command of that name and its arguments.

    `whole` is the command in messages, with the word behind it that is a command of its own.

    The hook is private to tyro: a version that lacks it prints its own text, and exits.
    """
    try:
        from tyro import _errors as events
    except ImportError:
        yield
        return

    def refuse(event: Any) -> None:
        if text := _describe(event, args, list_flags(name), whole):
            raise BadArgument(text)

    with events.on_parse_error(refuse):
        yield


def _describe(event: Any, args: Sequence[str], known: Sequence[str], name: str) -> str:
    """Return what is wrong, what is accepted and what to do; empty for an event that is not known here."""
    more = f"`gem-gym {name} --help` explains"
    match type(event).__name__:
        case "UnrecognizedArgs":
            return _describe_unknown(event.tokens, name, known)
        case "MissingArgs":
            if event.unrecognized_tokens:  # a required flag that is misspelt is both
                return _describe_unknown(event.unrecognized_tokens, name, known)
            missing = [_name(each.arg, with_value=True) for each in event.missing_arguments]
            return f"{' and '.join(missing)} must be given. {more} {'it' if len(missing) == 1 else 'them'}."
        case "InvalidChoice":
            accepted = [choice for choice in event.choices if choice]  # "" stands for a flag left out
            text = f"{_name(event.argument)} is {event.value!r}; accepted: {', '.join(accepted)}."
            return text + did_you_mean(event.value, accepted)
        case "BadValue" if event.reason == "too_few_values":
            if unknown := [each for each in _flags(args) if each not in known]:
                return _describe_unknown(unknown, name, known)
            return f"{_name(event.argument, with_value=True)}: the value must be given. {more} it."
        case "InstantiationFailure":
            return _describe_value(str(event.message), event.argument)
    return ""


def _describe_value(message: str, argument: Any) -> str:
    if argument is None:
        return message
    for start, accepted in READ.items():
        if message.startswith(start):
            value = message.removeprefix(start) if message.endswith("'") else "too long"
            return f"{_name(argument)} is {value}; accepted: {accepted}."
    return f"{_name(argument)}: {message.rstrip('.')}."


def _describe_unknown(tokens: Sequence[str], name: str, known: Sequence[str]) -> str:
    flags = _flags(tokens)
    sentences = [f"no flag {flag}.{did_you_mean(flag, known)}" for flag in flags]
    if not flags:  # what follows an unknown flag may be its value
        sentences = [f"{', '.join(map(repr, tokens))}: more than `gem-gym {name}` takes."]
        if "--env" in known and ":" in tokens[0]:
            sentences.append("An environment is named by --env.")
    return " ".join([*sentences, f"`gem-gym {name} --help` shows all."])


def _flags(args: Sequence[str]) -> list[str]:
    flags = (arg.partition("=")[0] for arg in args if re.match("--?[A-Za-z]", arg))
    return [flag.replace("_", "-") for flag in flags]


def _name(argument: Any, with_value: bool = False) -> str:
    """Return what an argument is called on the command line, if asked with the form of its value."""
    lowered = argument.lowered
    if argument.is_positional():
        return argument.field.extern_name if lowered.choices else str(lowered.metavar)
    flag = max(lowered.name_or_flags, key=len)
    return f"{flag} {lowered.metavar}" if with_value and lowered.metavar else flag
