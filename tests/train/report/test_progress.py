"""What a run prints of a measurement."""

import io
from pathlib import Path

import pytest

pytest.importorskip("rich")
from records import episode, paid
from rich.console import Console

from gem.evals import summarise
from gem.record import Failure, StopReason
from gem.train.config import TrainConfig
from gem.train.report.progress import Terminal, draw, table
from gem.train.report.run_folder import RunFolder

WON = episode(*paid(0.0, 1.0))
AT_ONCE = episode(*paid(1.0))
PAID = episode(*paid(0.0, 2.5), stop=StopReason.ENDED)
BROKEN = episode(*paid(None), stop=StopReason.ERROR, error=Failure("host", "WorkerDied", "gone"))


@pytest.mark.parametrize(
    ("played", "said"),
    [
        ([WON] * 3, "success 100.0%, turns to success 2.00\n"),
        ([AT_ONCE] * 3, ": success 100.0%\n"),  # a task of one turn
        ([PAID] * 3, ": return 2.500\n"),  # nobody says what success is
        ([WON, WON, BROKEN], "; 1 of 3 have no verdict\n"),
    ],
)
def test_a_measurement_tells_what_the_task_has(played, said):
    screen = io.StringIO()
    Terminal(Console(file=screen, width=200)).measured("before", summarise("test:X", played))
    assert screen.getvalue().endswith(said)


@pytest.mark.parametrize(("episodes", "said"), [(400, "400 episodes are rounded up to 512"), (512, "")])
def test_a_run_says_that_it_plays_whole_iterations(episodes, said, tmp_path):
    screen = io.StringIO()
    config = TrainConfig(episodes=episodes, batch=256)
    Terminal(Console(file=screen, width=200)).begun(RunFolder(tmp_path), config, [])
    assert screen.getvalue().startswith(said)
    assert bool(screen.getvalue()) == bool(said)


@pytest.mark.parametrize("exactly", [True, False])
def test_only_what_was_counted_whole_is_called_exact(exactly):
    screen = io.StringIO()
    figures = summarise("test:X", [WON] * 3, exactly=exactly)
    Console(file=screen, width=200).print(table({"greedy": figures}))
    assert ("exact" in screen.getvalue()) == exactly
    assert ("43.9% to 100.0%" in screen.getvalue()) != exactly  # Wilson, 3 of 3


@pytest.mark.parametrize(
    ("played", "titles"),
    [(WON, ["success", "turns to success"]), (AT_ONCE, ["success"]), (PAID, ["return"])],
)
def test_the_columns_fit_the_task(played, titles):
    grid = table({"before": summarise("test:X", [played] * 3), "after": summarise("test:X", [played] * 3)})
    assert [column.header for column in grid.columns[1::2]] == titles


def test_a_name_that_reads_as_a_formula_is_drawn(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    Path(r"a$\x$.py").write_text("from gem.envs.games.guess_the_number import GuessTheNumber as Own\n")
    draw([], {}, TrainConfig(env=r"a$\x$.py:Own"), Path("curve.png"))
    assert Path("curve.png").stat().st_size
