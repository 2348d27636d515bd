"""Hosts: where environments live. `make_host` makes one by name: serial, thread, process, or a plug-in's."""

from gem.hosts.base import Host, Outcome, auto_kind, make_host

__all__ = ["Host", "Outcome", "auto_kind", "make_host"]
