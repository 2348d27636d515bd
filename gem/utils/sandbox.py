"""Upstream's place of `run_python`; its home is `gem.tools.python_code_tool`."""

from gem.tools.python_code_tool import run_python

__all__ = ["run_python"]
