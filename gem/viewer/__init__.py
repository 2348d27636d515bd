"""The viewer: pages over episode stores and training runs, served on this machine alone."""

from importlib.util import find_spec

from gem.errors import missing_extra

for _package in ("starlette", "uvicorn", "jinja2"):
    if find_spec(_package) is None:
        raise missing_extra("the viewer", _package, "viewer")
