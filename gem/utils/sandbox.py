"""Upstream's name of `run_python`, which is defined in `gem.tools.python_code_tool`."""

from gem.tools.python_code_tool import run_python

__all__ = ["run_python"]
