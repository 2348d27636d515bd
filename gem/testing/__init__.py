"""Testing: the public judge of environments, golden transcripts, and doubles."""

from gem.testing.contract import Finding, Report, check_env
from gem.testing.doubles import EchoEnv
from gem.testing.faults import FaultyEnv, Fell
from gem.testing.rules import HEADINGS, HOSTILE, RULES

__all__ = ["HEADINGS", "HOSTILE", "RULES", "EchoEnv", "FaultyEnv", "Fell", "Finding", "Report", "check_env"]
