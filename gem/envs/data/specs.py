"""The family of environments over data of one's own: one name per kind of grader."""

from __future__ import annotations

from gem.graders import GIVEN, MADE
from gem.registry import Family
from gem.specs import Needs

FAMILY = Family(
    "data",
    "gem.envs.data.env:DataEnv",
    (*MADE, *GIVEN),
    claims={"max_turns": 1, "solver": "oracle"},
    exceptions={
        "code": {"waits": True, "needs": Needs(sandbox=True), "solver": "none"},
        "judge": {"waits": True, "deterministic": False, "solver": "none"},
        "function": {"solver": "none"},
    },
)
