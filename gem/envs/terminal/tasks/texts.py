"""The tasks' texts: instructions.toml, the solutions' bash scripts, and programs that tasks put in place."""

from __future__ import annotations

from functools import cache
from typing import Any

from gem.envs.kit.templates import filled, read, read_toml, unwrapped


def instruction(name: str, **values: Any) -> str:
    """Return an instruction of ``instructions.toml`` with values in its fields."""
    return filled(name, [unwrapped(_instructions()[name])], values)[0]


def solution(name: str, **values: Any) -> str:
    """Return the bash script ``name.sh``: as it stands, or as a template where there are values."""
    text = _file(f"{name}.sh")
    return filled(f"{name}.sh", [text], values)[0] if values else text


def program(name: str) -> bytes:
    """Return the Python program ``name.py.txt``; its name keeps it from being taken for a module of ours."""
    return f"{_file(f'{name}.py.txt')}\n".encode()


@cache
def _instructions() -> dict[str, str]:
    return read_toml(__package__, "instructions.toml")


@cache
def _file(name: str) -> str:
    return read(__package__, name)
