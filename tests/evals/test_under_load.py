"""Episodes against an endpoint that limits rates, is slow, cuts its answers off, sends no JSON, or HTML."""

import pytest

pytest.importorskip("httpx", reason="needs httpx: pip install 'gem-gym[openai]'")
from bench.evaluation import load


@pytest.mark.system
@pytest.mark.parametrize("episodes", [64, pytest.param(1000, marks=pytest.mark.slow)])
def test_all_episodes_in_flight_are_scored(episodes):
    found = load(("mixed",), episodes)["mixed"]
    assert (found["scored"], found["success"]) == (episodes, 1.0)
    assert found["server"]["faults"] >= episodes // 4
    assert found["peak_mb"] < 1024
