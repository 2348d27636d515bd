"""What a run prints of a measurement."""

import io

import pytest

pytest.importorskip("rich")
from records import episode, paid
from rich.console import Console

from gem.evals import summarise
from gem.record import Failure, StopReason
from gem.train.progress import Terminal

WON = episode(*paid(1.0))
BROKEN = episode(*paid(None), stop=StopReason.ERROR, error=Failure("host", "WorkerDied", "gone"))


@pytest.mark.parametrize(
    ("played", "said"),
    [([WON] * 3, "turns to success 1.00\n"), ([WON, WON, BROKEN], "; 1 of 3 have no verdict\n")],
)
def test_episodes_without_verdict_are_told_with_the_figures(played, said):
    screen = io.StringIO()
    Terminal(Console(file=screen, width=200)).measured("before", summarise("test:X", played))
    assert screen.getvalue().endswith(said)
