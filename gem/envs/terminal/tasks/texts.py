"""The texts of the tasks: instructions.toml, bash scripts of solutions, and programs that tasks need."""

from __future__ import annotations

from functools import cache
from typing import Any

from gem.envs.kit.templates import fill_templates, read, read_toml, unwrap_lines


def instruction(name: str, **values: Any) -> str:
    """Return an instruction of ``instructions.toml`` with its fields filled in."""
    return fill_templates(name, [unwrap_lines(_instructions()[name])], values)[0]


def solution(name: str, **values: Any) -> str:
    """Return the bash script ``name.sh``; with `values`, it is a template that they fill in."""
    text = _file(f"{name}.sh")
    return fill_templates(f"{name}.sh", [text], values)[0] if values else text


def program(name: str) -> bytes:
    """Return the Python program ``name.py.txt``; with this ending it is not mistaken for a module of gem."""
    return f"{_file(f'{name}.py.txt')}\n".encode()


@cache
def _instructions() -> dict[str, str]:
    return read_toml(__package__, "instructions.toml")


@cache
def _file(name: str) -> str:
    return read(__package__, name)
