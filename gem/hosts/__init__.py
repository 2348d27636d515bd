"""Hosts: they run environments. `make_host` makes one by name: serial, thread, process, or of a plug-in."""

from gem.hosts.base import Host, Outcome, auto_kind, make_host

__all__ = ["Host", "Outcome", "auto_kind", "make_host"]
