"""No scorer of reasoning-gym runs what a model wrote: alone, in a composite, or in one's own data set."""

import dataclasses
import itertools
import os
import signal

import pytest

import gem
from gem.envs.bridges.specs import RG_NAMES
from gem.errors import BadArgument
from tests.shared import hostile_text

pytest.importorskip("reasoning_gym")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::SyntaxWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

import reasoning_gym
from reasoning_gym.algorithmic.spiral_matrix import SpiralMatrixDataset
from reasoning_gym.arithmetic.chain_sum import ChainSumDataset
from reasoning_gym.composite import CompositeDataset, DatasetSpec
from reasoning_gym.dataset import ProceduralDataset
from reasoning_gym.factory import DATASETS

from gem.envs.bridges import reasoning_gym as bridge
from gem.envs.bridges.reasoning_gym_screens import EVALUATORS, SCREENS

RUNNING = sorted(name for name, (kind, _) in DATASETS.items() if bridge._evaluators(kind))
"""Data sets whose scorers reach something that evaluates text."""

CPU_S = 4  # far above what any scorer may take of one answer, so that load does not matter


def composite(*names, **kwargs):
    return gem.make("rg:composite", datasets=[DatasetSpec(name, 1, {}) for name in names], **kwargs)


def nested_composite(name):
    inner = {"datasets": [DatasetSpec(name, 1, {})]}
    return gem.make("rg:composite", datasets=[DatasetSpec("composite", 1, inner)])


def given(name):
    return gem.make("rg:chain_sum", dataset=reasoning_gym.create_dataset(name, size=3, seed=1))


def given_composite(name):
    data = reasoning_gym.create_dataset("composite", datasets=[DatasetSpec(name, 1, {})], size=3, seed=1)
    return gem.make("rg:chain_sum", dataset=data)


WAYS = {
    "alone": lambda name: gem.make(f"rg:{name}"),
    "in a composite": composite,
    "in a composite of composites": nested_composite,
    "as an object": given,
    "as a composite object": given_composite,
}


@pytest.fixture
def watch(tmp_path, monkeypatch):
    """Return a function that plays one answer and fails if it was run, or took CPU time without an end."""
    monkeypatch.chdir(tmp_path)

    def stop(number, frame):
        raise TimeoutError("the scorer does not end")

    before = signal.signal(signal.SIGVTALRM, stop)

    def play(env, answer):
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
        try:
            score, why = env._score(answer, env._entry, 0)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        assert "TimeoutError" not in why, f"{env.name} does not end on {answer[:80]!r}"
        assert not os.path.exists(hostile_text.EVIDENCE), f"{env.name} ran {answer[:80]!r}"
        return score

    yield play
    signal.signal(signal.SIGVTALRM, before)


def test_the_scorers_that_evaluate_are_found():
    assert {"countdown", "spiral_matrix", "simple_integration", "n_queens"} <= set(RUNNING)
    assert set(RUNNING) - set(SCREENS) == set(bridge.EVALUATES_OWN)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", RUNNING)
def test_no_answer_is_run(name, way, watch):
    env = WAYS[way](name)
    env.reset(seed=0)
    assert env._entry["metadata"]["source_dataset"] == name
    for answer in hostile_text.programs(env._entry["answer"] or "1"):
        assert watch(env, answer) < 1
    watch(env, "9**9**9**9")
    if env._entry["answer"] is not None:
        assert env.step(env.solve()).reward == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", RG_NAMES)
def test_every_data_set_is_safe_from_every_answer(name, watch):
    for way in ("alone", "in a composite"):
        env = WAYS[way](name)
        env.reset(seed=0)
        assert env._entry["metadata"]["source_dataset"] == name
        reference = env._entry["answer"] or "1"
        texts = itertools.chain(hostile_text.every_text(reference), hostile_text.generated(7, 60))
        for text in texts if way == "alone" else hostile_text.programs(reference):
            watch(env, text)
        for text in (reference * 2, f"{reference} " * 20, reference[::-1], reference[:-1], f"{reference}\0"):
            watch(env, text)


def test_the_rows_of_an_environment_score_through_the_screen(watch):
    env = gem.make("rg:spiral_matrix", size=3)
    entry = env.dataset[0]
    for text in hostile_text.programs(entry["answer"]):
        assert env.dataset.score_answer(text, entry) < 1
    assert not os.path.exists(hostile_text.EVIDENCE)
    assert env.dataset.score_answer(entry["answer"], entry) == 1.0


# -- data sets that gem does not know


@dataclasses.dataclass
class Config:
    seed: int | None = None
    size: int = 1


class Newer(ProceduralDataset):
    """A data set as a newer version of the package may bring one, whose scorer runs answers."""

    def __init__(self, config):
        super().__init__(config, config.seed, config.size)

    def __getitem__(self, index):
        return {"question": "?", "answer": "42", "metadata": {"source_dataset": "newer"}}

    def score_answer(self, answer, entry):
        return float(eval(answer) == 42)  # noqa: S307 - what gem must refuse


class Quiet(Newer):
    """Another, whose scorer compares text as the package's base class does."""

    score_answer = ProceduralDataset.score_answer


class Changed(SpiralMatrixDataset):
    """A known one, with a scorer of its own."""

    def score_answer(self, answer, entry):
        return float(eval(answer) is None)  # noqa: S307 - what gem must refuse


@pytest.fixture
def newer(monkeypatch):
    monkeypatch.setitem(DATASETS, "newer", (Newer, Config))
    monkeypatch.setitem(DATASETS, "quiet", (Quiet, Config))


@pytest.mark.parametrize(
    "make",
    [
        lambda: gem.make("rg:newer"),
        lambda: composite("chain_sum", "newer"),
        lambda: nested_composite("newer"),
        lambda: given("newer"),
        lambda: given_composite("newer"),
        lambda: gem.make("rg:spiral_matrix", dataset=Changed(DATASETS["spiral_matrix"][1]())),
        lambda: gem.make("rg:chain_sum", dataset=[{"question": "?", "answer": "1", "metadata": {}}]),
    ],
)
def test_a_scorer_that_nobody_checked_is_refused(make, newer):
    with pytest.raises(BadArgument, match=r"might run what a model writes.*SCREENS"):
        make()


def test_an_unknown_one_assigned_later_is_refused(newer):
    env = gem.make("rg:chain_sum")
    with pytest.raises(BadArgument, match="might run"):
        env.dataset = reasoning_gym.create_dataset("newer")
    data = CompositeDataset(DATASETS["composite"][1](datasets=[DatasetSpec("chain_sum", 1, {})], seed=1))
    env.dataset = data
    data.add_dataset(DatasetSpec("newer", 1, {}))
    data.remove_dataset("chain_sum")
    env.reset(seed=0)
    with pytest.raises(BadArgument, match="might run"):
        env.step("\\boxed{1}")


def test_one_that_compares_text_needs_no_check(newer):
    env = gem.make("rg:quiet")
    env.reset(seed=0)
    assert env.step("\\boxed{42}").reward == 1.0


def test_a_check_of_ones_own_opens_the_door(newer, monkeypatch):
    monkeypatch.setitem(SCREENS, "newer", lambda answer, entry: answer.isdigit())
    env = composite("newer")
    env.reset(seed=0)
    assert env.fork().step("\\boxed{42}").reward == 1.0
    assert env.fork().step("\\boxed{41+1}").info["why"].startswith("the answer is wrong")


def test_a_known_scorer_that_comes_to_evaluate_is_refused(monkeypatch):
    def score_answer(self, answer, entry):
        return self.helped(answer)

    monkeypatch.setattr(ChainSumDataset, "score_answer", score_answer)
    monkeypatch.setattr(ChainSumDataset, "helped", lambda self, answer: eval(answer), raising=False)  # noqa: S307
    bridge._evaluators.cache_clear()
    with pytest.raises(BadArgument, match="chain_sum might run what a model writes: it calls eval"):
        gem.make("rg:chain_sum")
    bridge._evaluators.cache_clear()


def test_an_entry_without_its_source_is_not_scored():
    env = composite("chain_sum")
    entry = {**env.dataset[0], "metadata": {}}
    with pytest.raises(BadArgument, match=r"source_dataset None; accepted: chain_sum"):
        env.dataset.score_answer("1", entry)
    assert "eval" in EVALUATORS
