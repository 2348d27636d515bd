"""Families of terminal tasks; a seed draws an instruction, the initial files, and a hidden test."""

from __future__ import annotations

from gem.envs.terminal.base import TerminalFamily
from gem.envs.terminal.tasks import code, files, git, system, text

FAMILIES: dict[str, TerminalFamily] = {
    "Archives": TerminalFamily(files.archives, ("tar", "gzip")),
    "Checksums": TerminalFamily(files.checksums),
    "ConfigEdit": TerminalFamily(text.config_edit),
    "CsvReport": TerminalFamily(text.csv_report),
    "Duplicates": TerminalFamily(files.duplicates),
    "Encodings": TerminalFamily(text.encodings),
    "FindText": TerminalFamily(text.find_text),
    "GitHistory": TerminalFamily(git.git_history, ("git",)),
    "GitMerge": TerminalFamily(git.git_merge, ("git",)),
    "JsonLines": TerminalFamily(text.records),
    "LogAnalysis": TerminalFamily(text.log_analysis, ("gzip",)),
    "Makefile": TerminalFamily(code.makefile, ("make",)),
    "PatchRepo": TerminalFamily(code.patch_repo),
    "Permissions": TerminalFamily(files.permissions),
    "Processes": TerminalFamily(system.processes, starts=True),
    "Rename": TerminalFamily(files.rename),
    "Schedule": TerminalFamily(text.schedule),
    "Service": TerminalFamily(system.service, starts=True),
    "Symlinks": TerminalFamily(files.symlinks),
}
"""Every family by name. All of them also need bash, coreutils, findutils, grep, sed, awk and python3."""

__all__ = ["FAMILIES"]
