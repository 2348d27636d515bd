"""Families of terminal tasks, each drawn from a seed: what is asked, what is there, and a hidden test."""

from __future__ import annotations

from gem.envs.terminal_tasks import code, files, git, system, text
from gem.envs.terminal_tasks.base import Box, Family, TerminalTask, expect
from gem.envs.terminal_tasks.folder import read_folder, script_test

FAMILIES: dict[str, Family] = {
    "Archives": Family(files.archives, ("tar", "gzip")),
    "Checksums": Family(files.checksums),
    "ConfigEdit": Family(text.config_edit),
    "CsvReport": Family(text.csv_report),
    "Duplicates": Family(files.duplicates),
    "Encodings": Family(text.encodings),
    "FindText": Family(text.find_text),
    "GitHistory": Family(git.git_history, ("git",)),
    "GitMerge": Family(git.git_merge, ("git",)),
    "JsonLines": Family(text.records),
    "LogAnalysis": Family(text.log_analysis, ("gzip",)),
    "Makefile": Family(code.makefile, ("make",)),
    "PatchRepo": Family(code.patch_repo),
    "Permissions": Family(files.permissions),
    "Processes": Family(system.processes),
    "Rename": Family(files.rename),
    "Schedule": Family(text.schedule),
    "Service": Family(system.service),
    "Symlinks": Family(files.symlinks),
}
"""Every family by name. All of them also need bash, coreutils, findutils, grep, sed, awk and python3."""

__all__ = ["FAMILIES", "Box", "Family", "TerminalTask", "expect", "read_folder", "script_test"]
