"""Rewards that compare the samples of a task, measured by an evaluation."""

import asyncio
import json

import pytest

from gem.agents.base import BaseAgent
from gem.cli import main
from gem.errors import BadArgument, NoVerdict
from gem.evals import evaluate
from gem.graders.rubric import Rubric
from gem.naming import fix_name, keep_value
from gem.record import Reply
from gem.registry import Maker
from gem.rollout import EpisodeStore

ENV = "math:Arithmetic-v0-easy"
REWARD = """
from collections import Counter
from pathlib import Path

def agreement(episode, turns, group):
    with Path("calls").open("a") as file:
        file.write("x")
    answers = Counter(each.turns[-1].action for each in group)
    return [0.0] * (len(turns) - 1) + [(answers[turns[-1].action] - 1) / (len(group) - 1)]
"""


class Answers(BaseAgent):
    """Answers by the ask's seed; the answer of the first asks may be an error."""

    def __init__(self, *broken):
        self.broken, self.asked = {*broken}, 0

    def __call__(self, asks):
        replies = []
        for ask in asks:
            self.asked += 1
            replies.append(
                RuntimeError("lost") if self.asked in self.broken else Reply(f"\\boxed{{{ask.seed % 2}}}")
            )
        return replies


@pytest.fixture
def reward(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(REWARD)
    return "own.py:agreement"


def calls(folder):
    return len((folder / "calls").read_text())


def parts(store):
    return [store[entry.number].turns[-1].rewards.get("agreement") for entry in store.latest()]


def test_samples_are_compared_and_stored_and_compared_once(reward, tmp_path):
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        result = evaluate(Answers(), ENV, episodes=3, samples=4, reward=reward, store=store)
        assert (calls(tmp_path), result.scored, result.gaps) == (12, 12, {})
        stored = parts(store)
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        again = evaluate(Answers(), ENV, episodes=3, samples=4, reward=reward, store=store, resume=True)
        assert parts(store) == stored
    assert calls(tmp_path) == 12
    assert again.parts == result.parts
    assert result.parts["agreement"].mean == pytest.approx(sum(stored) / 12)
    assert again.success == result.success
    assert again.reward == result.reward


def test_a_sample_without_a_verdict_leaves_the_others_theirs_until_it_has_one(reward, tmp_path):
    play = {"episodes": 1, "samples": 3, "reward": reward}
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        result = evaluate(Answers(1), ENV, **play, store=store, retries=0)
        assert (result.scored, result.parts["agreement"].n, calls(tmp_path)) == (2, 2, 2)
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        result = evaluate(Answers(), ENV, **play, store=store, resume=True, retry_failed=True)
        assert (result.scored, result.parts["agreement"].n, calls(tmp_path)) == (3, 3, 5)
    (tmp_path / "own.py").write_text(REWARD.replace("- 1) /", "- 1) / 2 /"))
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        name = fix_name(reward, "reward")
        changed = evaluate(Answers(), ENV, **{**play, "reward": name}, store=store, resume=True)
    assert changed.parts["agreement"].mean == pytest.approx(result.parts["agreement"].mean / 2)


def test_a_sample_alone_has_nothing_to_be_compared_with(reward):
    result = evaluate(Answers(1, 2), ENV, episodes=1, samples=3, reward=reward, retries=0)
    assert (result.scored, result.parts) == (1, {})
    assert "in 1 of 1 episodes" in result.gaps["agreement"]
    assert "no other sample of the task has a verdict" in result.gaps["agreement"]
    with pytest.raises(BadArgument, match="in an evaluation several samples, as -k 4"):
        evaluate(Answers(), ENV, episodes=1, reward=reward)


def test_a_reward_that_fails_is_missing_and_never_zero(tmp_path, monkeypatch):
    async def judged(episode, turns, group):
        if episode.sample == 0:
            raise NoVerdict("the judge is silent")
        if episode.sample == 1:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        return [0.5] * len(turns)

    name = keep_value(judged, "reward", "judged")
    result = evaluate(Answers(), ENV, episodes=2, samples=4, reward=name)
    assert (result.parts["judged"].n, result.parts["judged"].mean) == (4, 0.5)
    assert result.gaps["judged"].startswith("in 4 of 8 episodes, first in episode")
    assert "the judge is silent" in result.gaps["judged"]
    assert result.scored == 8
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        evaluate(Answers(), ENV, episodes=1, samples=4, reward=name, store=store)
        lost = store[store.latest()[1].number].turns[-1]
    assert "judged" not in (lost.rewards or {})
    assert "TimeoutError" in lost.info["no_verdict"]["judged"]


def test_a_reward_may_not_take_the_name_of_a_part_of_the_rubric():
    def exact(episode, turns, group):
        return [0.0] * len(turns)

    env = Maker(
        "data:math", {"data": [{"question": "?", "answer": "1"}], "grader": Rubric({"exact": "math"})}
    )
    with pytest.raises(BadArgument, match="pays a part 'exact' itself"):
        evaluate(Answers(), env, samples=2, reward=keep_value(exact, "reward", "exact"))


def test_all_samples_of_a_task_are_judged_at_the_same_time_and_cancelled_together():
    together, cancelled = asyncio.Barrier(3), []

    async def judged(episode, turns, group):
        async with asyncio.timeout(30):
            await together.wait()
        return [1.0] * len(turns)

    async def stops(episode, turns, group):
        try:
            if episode.sample == 0:
                await asyncio.sleep(0)
                raise KeyboardInterrupt
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(episode.sample)
            raise

    play = {"episodes": 1, "samples": 3}
    assert (
        evaluate(Answers(), ENV, **play, reward=keep_value(judged, "reward", "j")).parts["judged"].mean == 1
    )
    with pytest.raises(KeyboardInterrupt):
        evaluate(Answers(), ENV, **play, reward=keep_value(stops, "reward", "s"))
    assert sorted(cancelled) == [1, 2]


def test_the_command_measures_what_compares_and_goes_on(reward, tmp_path, capsys):
    command = ["eval", ENV, "-n", "3", "-k", "4", "--agent", "random", "--reward", reward, "--out", "runs/k"]
    command += ["--budget-tokens", "100000"]
    assert main(command) == 0
    first = json.loads((tmp_path / "runs/k/result.json").read_text())
    assert main(["eval", "--resume", "--out", "runs/k"]) == 0
    assert calls(tmp_path) == 12
    again = json.loads((tmp_path / "runs/k/result.json").read_text())

    assert first["results"][0]["parts"] == again["results"][0]["parts"]
    assert first["results"][0]["parts"]["agreement"]["n"] == 12
    assert "agreement" in capsys.readouterr().out
