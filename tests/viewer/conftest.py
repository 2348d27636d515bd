"""Runs to look at: a hand-made store with tokens, and what played, in a folder of a training run."""

import json

import pytest
from records import episode, turn

from gem.agents.random import RandomAgent
from gem.record import RunInfo, StopReason
from gem.rollout import EpisodeStore, Job, rollout
from gem.tokens.tiny import TinyRenderer

GUESS = "game:GuessTheNumber-v0-easy"
TOKEN = "t0ken"
RENDERER = TinyRenderer()
RUN = RunInfo("run", "TinyAgent", "tiny", {"temperature": 1.0}, RENDERER.vocab_hash)


def need_viewer():
    """Skip the module where the viewer, or what asks it for pages, is not installed."""
    for package in ("starlette", "uvicorn", "jinja2", "httpx"):
        pytest.importorskip(package, reason=f"needs {package}: pip install 'gem-gym[viewer]' httpx")


class Pages:
    """The pages of some runs, as a browser on this machine gets them."""

    def __init__(self, *paths):
        from starlette.testclient import TestClient

        from gem.viewer.app import Viewer
        from gem.viewer.sources import open_sources

        self.viewer = Viewer(open_sources(paths), TOKEN)
        self.client = TestClient(
            self.viewer.app, base_url="http://127.0.0.1:80", raise_server_exceptions=True
        )

    def get(self, path, code=200, **kwargs):
        answer = self.client.get(f"/{TOKEN}/{path}", follow_redirects=False, **kwargs)
        assert answer.status_code == code, answer.text
        return answer

    def post(self, path, code=200, **kwargs):
        answer = self.client.post(f"/{TOKEN}/{path}", follow_redirects=False, **kwargs)
        assert answer.status_code == code, answer.text
        return answer


@pytest.fixture
def pages():
    opened = []

    def open_pages(*paths):
        opened.append(Pages(*paths))
        return opened[-1]

    yield open_pages
    for each in opened:
        each.client.close()
        for source in each.viewer.sources:
            source.store.close()


def answer(text, *, prompt="higher or lower?", after=(), logprobs=None, **fields):
    """A turn in which the tiny model said `text`."""
    ids = RENDERER.encode(text)
    logprobs = [-0.01 - i for i in range(len(ids))] if logprobs is None else logprobs
    made = turn(observation=prompt, action=text, **fields)
    made.hold((2, *RENDERER.encode(prompt), 0, 3), ids, logprobs, after=after)
    return made


def write(path, *episodes):
    path.parent.mkdir(parents=True, exist_ok=True)
    with EpisodeStore(path) as store:
        for each in episodes:
            store.append(each)
    return path


@pytest.fixture
def played(tmp_path):
    """Twelve episodes of a random agent."""
    path = tmp_path / "played" / "episodes.jsonl"
    path.parent.mkdir()
    with EpisodeStore(path) as store:
        rollout([Job(GUESS, seed, key=f"job{seed}") for seed in range(12)], RandomAgent(), store=store)
    return path


def training(folder, seed=0, iterations=6):
    """The folder of a training run: its files, written by hand, and four episodes an iteration."""
    folder.mkdir(parents=True)
    config = {"env": GUESS, "algorithm": "rebn", "gamma": 0.5, "batch": 4, "seed": seed, "out": str(folder)}
    (folder / "config.json").write_text(json.dumps(config))
    lines = [
        {"iteration": i + 1, "episodes": 4 * i + 4, "success": (i + seed) / 10, "reward": i / 8, "turns": 2.0}
        for i in range(iterations)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    episodes = []
    for i in range(iterations):
        for task in range(4):
            won = task < i
            first = answer("\\boxed{5}", reward=0.0, policy_version=i)
            second = answer("\\boxed{7}", after=[first], reward=float(won), policy_version=i)
            stop = StopReason.SOLVED if won else StopReason.FAILED
            episodes.append(
                episode(
                    first, second, stop=stop, seed=100 * i + task, run=RUN, job=f"{i}-{task}", group=str(task)
                )
            )
    write(folder / "episodes.jsonl", *episodes)
    return folder


def watch(folder, seeds=2, iterations=6, extra=()):
    """The watched episodes of that run: seed 0 is solved from iteration 3 on, seed 1 never."""
    episodes = []
    for i in range(iterations + 1):
        for number in range(seeds):
            won = number == 0 and i >= 3
            first = answer("\\boxed{5}", reward=0.0, policy_version=i)
            word = "\\boxed{7}" if won else "\\boxed{1}"
            second = answer(word, after=[first], reward=float(won), policy_version=i)
            for each in (first, second):
                each.extra = {"entropy": [0.5 * number] * len(each.token_ids)}
            stop = StopReason.SOLVED if won else StopReason.FAILED
            episodes.append(
                episode(
                    first,
                    second,
                    stop=stop,
                    seed=7000 + number,
                    run=RUN,
                    job=f"{i}-{number}",
                    group=str(number),
                )
            )
    write(folder / "watched.jsonl", *episodes, *extra)
    return folder
