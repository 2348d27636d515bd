"""Registry entries of programming: gem's own problems, and data sets."""

from __future__ import annotations

from typing import Any

from gem.specs import EnvSpec, Needs


def _basics(variant: str, **kwargs: Any) -> EnvSpec:
    claims: dict[str, Any] = {"extra": "code", "max_turns": 1, "waits": True, "solver": "oracle"}
    claims["needs"] = Needs(sandbox=True)
    return EnvSpec(f"code:Basics-v0-{variant}", "gem.envs.code.env:CodeBasics", kwargs, **claims)


def _data(env_id: str, dataset: str, split: str = "train") -> EnvSpec:
    return EnvSpec(  # no solver: the data has tests but no solutions
        env_id,
        "gem.envs.code.env:CodeEnv",
        {"dataset_name": dataset, "split": split},
        extra="code,data",
        data=dataset,
        max_turns=1,
        waits=True,
        needs=Needs(sandbox=True),
    )


SPECS = (
    _basics("easy", level="easy"),
    _basics("medium", level="medium"),
    _basics("hard", level="hard"),
    _basics("random"),
    _data("code:CodeContest", "axon-rl/CodeContest"),
    _data("code:Taco8k", "axon-rl/TACO-8k"),
    _data("code:PrimeIntellect15k", "axon-rl/PrimeIntellect-15k"),
    _data("eval:CodeContest", "axon-rl/CodeContest", "test"),
)
