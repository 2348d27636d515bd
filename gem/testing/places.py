"""The places in an author's code where errors are raised and calls hang."""

from __future__ import annotations

import inspect
import os
import sysconfig
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from gem.core import Env

_PACKAGE = Path(__file__).parents[1]
_STDLIB = Path(sysconfig.get_path("stdlib"))


def where(error: BaseException) -> str:
    """Return the place in an environment's own code where an error was raised, or came through last."""
    return place([frame for frame, _ in traceback.walk_tb(error.__traceback__)], error)


def place(frames: list[FrameType], error: BaseException | None = None) -> str:
    """Return the innermost place in an author's code, of frames from the outermost to the innermost.

    If there is none, it is the class whose method was called. A place in gem, as in a base class, is an
    author's only where that class is gem's too.
    """
    lines = {frame: frame.f_lineno for frame in frames}
    if error is not None:  # a frame's own line goes on after the error
        lines = dict(traceback.walk_tb(error.__traceback__))
    classes = [type(getattr(env, "unwrapped", env)) for env in map(env_of, frames) if env is not None]
    others = bool(classes) and classes[0].__module__.partition(".")[0] != _PACKAGE.name
    for frame in reversed(frames):
        path = frame.f_code.co_filename
        if is_authors(path) and not (others and Path(path).is_relative_to(_PACKAGE)):
            return f"in {frame.f_code.co_name}() ({os.path.basename(path)}:{lines[frame]})"
    if not classes:
        return "in the environment's class"
    made = classes[0]
    with suppress(OSError, TypeError):  # there is no source
        at = f"{os.path.basename(inspect.getfile(made))}:{inspect.getsourcelines(made)[1]}"
        forgot = (
            isinstance(error, AttributeError) and isinstance(error.obj, made) and "__init__" in vars(made)
        )
        ask = "; does its __init__() call super().__init__()?" if forgot else ""
        return f"in the class {made.__name__} ({at}{ask})"
    return f"in the class {made.__name__}"


def called_method(error: BaseException) -> str:
    """Return the name of the environment's method that was called, as ``step``, or ``""``."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if env_of(frame) is not None:
            return method_name(frame)
    return ""


def method_name(frame: FrameType) -> str:
    """Return the name of a frame's function; the guard of step() counts as step()."""
    name = frame.f_code.co_name
    return name.removeprefix("run_") if name in ("run_reset", "run_step", "run_close") else name


def env_of(frame: FrameType) -> Env | None:
    """Return the environment whose method a frame runs, or None."""
    code = frame.f_code
    first: Any = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    return first if isinstance(first, Env) and hasattr(type(first), method_name(frame)) else None


def is_authors(filename: str) -> bool:
    """Return whether a file may be an environment's: not gem's machinery, and not the standard library."""
    path = Path(filename)
    if path.is_relative_to(_PACKAGE):
        return path.is_relative_to(_PACKAGE / "envs") and not path.is_relative_to(_PACKAGE / "envs/kit")
    installed = "site-packages" in path.parts or "dist-packages" in path.parts
    return not filename.startswith("<") and (installed or not path.is_relative_to(_STDLIB))
