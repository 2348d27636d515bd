"""Tools to test environments: contract checks, audits, golden transcripts, and test doubles."""

from gem.testing.audit import audit_env
from gem.testing.card import Card, Check
from gem.testing.contract import Finding, Report, check_env
from gem.testing.doubles import EchoEnv
from gem.testing.faults import (
    Fault,
    Faults,
    FaultyAgent,
    FaultyGrader,
    FaultySandbox,
    FaultyServer,
    FaultyStore,
    FaultyTool,
    FaultyWrapper,
    Fell,
)
from gem.testing.rules import HEADINGS, HOSTILE, RULES

__all__ = [
    "HEADINGS",
    "HOSTILE",
    "RULES",
    "Card",
    "Check",
    "EchoEnv",
    "Fault",
    "Faults",
    "FaultyAgent",
    "FaultyGrader",
    "FaultySandbox",
    "FaultyServer",
    "FaultyStore",
    "FaultyTool",
    "FaultyWrapper",
    "Fell",
    "Finding",
    "Report",
    "audit_env",
    "check_env",
]
