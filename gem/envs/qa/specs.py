"""Registry entries of questions and answers, including logic."""

from __future__ import annotations

from typing import Any

from gem.specs import EnvSpec


def _make_spec(name: str, **kwargs: Any) -> EnvSpec:
    return EnvSpec(f"qa:{name}", "gem.envs.qa.env:FactsEnv", kwargs, max_turns=1, solver="oracle")


def _data(env_id: str, dataset: str, split: str, **kwargs: Any) -> EnvSpec:
    """Return the entry of a data set; `kwargs` name columns other than ``problem`` and ``answer``."""
    kwargs = {"dataset_name": dataset, "split": split, **kwargs}
    claims: dict[str, Any] = {"extra": "data", "data": dataset, "max_turns": 1, "solver": "oracle"}
    return EnvSpec(env_id, "gem.envs.qa.env:QaEnv", kwargs, **claims)


def _rule_taker(depth: int) -> EnvSpec:
    dataset = f"axon-rl/RuleTaker-d{depth}-70k"
    return _data(f"logic:RuleTaker-d{depth}", dataset, "train", question_key="question", extract_boxed=True)


def _search(name: str, split: str) -> EnvSpec:
    return _data(f"eval:{name}", "axon-rl/search-eval", split, question_key="question")


SPECS = (
    _make_spec("Facts-v0-easy", hops=1),
    _make_spec("Facts-v0-hard", hops=2),
    _make_spec("Facts-v0-random", hops=(1, 2)),
    _data("qa:NaturalQuestions", "axon-rl/NaturalQuestions", "train"),
    _data("qa:HotpotQA", "axon-rl/HotpotQA", "train"),
    *map(_rule_taker, (0, 1, 2, 3, 5)),
    _data("eval:QaOpen", "google-research-datasets/nq_open", "validation", question_key="question"),
    _search("2Wiki", "2wiki"),
    _search("PopQA", "popqa"),
    _search("TriviaQA", "tq"),
    _search("HotpotQA", "hotpotqa"),
    _search("Bamboogle", "bamboogle"),
    _search("NaturalQuestions", "nq"),
    _search("Musique", "musique"),
)
