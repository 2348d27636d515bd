"""What a run prints of a measurement."""

import io

import pytest

pytest.importorskip("rich")
from records import episode, paid
from rich.console import Console

from gem.evals import summarise
from gem.record import Failure, StopReason
from gem.train.progress import Terminal, table

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


@pytest.mark.parametrize("exactly", [True, False])
def test_only_what_was_counted_whole_is_called_exact(exactly):
    screen = io.StringIO()
    figures = summarise("test:X", [WON] * 3, exactly=exactly)
    Console(file=screen, width=200).print(table({"greedy": figures}))
    assert ("exact" in screen.getvalue()) == exactly
    assert ("43.9% to 100.0%" in screen.getvalue()) != exactly  # Wilson, 3 of 3
