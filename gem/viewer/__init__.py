"""The viewer: web pages of episodes and training runs, served on this machine only, or written as files."""

from importlib.util import find_spec

from gem.errors import missing_extra

if find_spec("jinja2") is None:
    raise missing_extra("the viewer", "jinja2", "viewer")
