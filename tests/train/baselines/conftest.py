import textwrap
from dataclasses import replace

import pytest

pytest.importorskip("torch")

from gem.train.baselines import rows
from gem.train.baselines.rows import Bounds, Figures, Row, Run
from gem.train.baselines.study import read_study

TINY = """
    episodes = 96
    batch = 32
    width = 16
    layers = 1
    heads = 2
    warmup_steps = 2
    eval_episodes = 10
    watch = 0
    store = "none"
"""

HEAD = """
    title = "Which?"
    seeds = [1, 2]
"""

PARTS = """
    [[environments]]
    id = "game:GuessTheNumber-v0-easy"
    name = "guess"
    [[variants]]
    name = "rebn"
    algorithm = "rebn"
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Write a study and read it: what stands above its tables, and what below its settings."""
    monkeypatch.chdir(tmp_path)

    def write(head=HEAD, parts=PARTS, settings=TINY, name="mine"):
        path = tmp_path / f"{name}.toml"
        path.write_text(textwrap.dedent(f"{head}\n    [settings]\n{settings}\n{parts}"))
        return read_study(path)

    return write


def figures(success, reward=None):
    def bounds(value):
        return None if value is None else Bounds(value, value - 0.1, value + 0.1, 50)

    return Figures(50, 50, bounds(success), bounds(success if reward is None else reward), 3.0)


def a_run(after=0.5, *, curve=(0.1, 0.2, 0.3), cpu_s=10.0, error=None, **others):
    """Return a run whose trained policy reached `after`, between random play's 0.2 and the solver's 1."""
    if error is not None:
        return Run("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", error=error)
    reached = {"random": 0.2, "before": 0.3, "after": after, "greedy": after, "optimum": 1.0, **others}
    return Run(
        started="2026-01-01T00:00:00Z",
        ended="2026-01-01T00:01:00Z",
        cpu_s=cpu_s,
        wall_s=12.0,
        episodes=96,
        figures={name: figures(value) for name, value in reached.items() if value is not None},
        versions={"gem": "0.1.0", "commit": "abc", "torch": "2", "python": "3"},
        machine={"processor": "A processor", "cores": 2, "system": "Linux", "dtype": "float32"},
        curve={
            "episodes": [float(32 * (i + 1)) for i in range(len(curve))],
            "cpu_s": [float(i) for i in range(len(curve))],
            **{name: list(curve) for name in ("success", "reward", "turns")},
        },
    )


def an_exact_run(rate):
    """Return a run whose trained policy was measured on every instance."""
    run = a_run(rate)
    after = replace(run.figures["after"], success=Bounds(rate, rate, rate, 50, exact=True))
    return replace(run, figures={**run.figures, "after": after})


def put(study, cell, runs, point=None, search=None):
    """Write a cell's row."""
    config = rows.common(study.config(cell, point))
    runs = {str(seed): run for seed, run in runs.items()}
    row = Row(study.name, cell.environment.name, cell.variant.name, config, runs, search)
    rows.write(study.row_of(cell), row)
    return row
