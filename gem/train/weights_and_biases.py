"""`--log wandb`: the run as one of Weights & Biases, offline unless ``WANDB_MODE`` says otherwise.

Offline it asks for no account and nothing leaves the machine: the run stands in the folder ``wandb`` of the
run's own, and ``wandb sync`` sends it when somebody wants that. A run that goes on keeps its id, and writes
a further file. ``WANDB_PROJECT``, ``WANDB_ENTITY`` and W&B's other variables count as they do elsewhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

from gem.errors import BadArgument, missing_extra
from gem.rollout.index import Entry
from gem.train.loggers import (
    Log,
    Moment,
    bounded,
    figures_of,
    grouped,
    measured_figures,
    settings_of,
    transcripts,
)
from gem.train.progress import draw

STATE = "wandb.json"
"""The file of the run's folder that holds the id, and how many moments are written."""
PROJECT = "gem"
MODE = "WANDB_MODE"
COLUMNS = ["iteration", "environment", "seed", "end", "return", "turns", "transcript"]


class WeightsAndBiases(Log):
    """Logs settings, figures, transcripts as tables, and the learning curve as a picture."""

    def __init__(self) -> None:
        """Look for the package; nothing is begun.

        Raises:
            MissingExtra: when it is not installed.
            BadArgument: when a run that is to be online would have to ask for a key.
        """
        if find_spec("wandb") is None:
            raise missing_extra("--log wandb", "wandb", "log")
        self.mode = os.environ.get(MODE) or "offline"
        # W&B reports errors of its own to its makers, and would do so of a run that is offline.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        if self.mode not in ("offline", "disabled", "dryrun"):
            import wandb

            if not wandb.login(prompt=False, verify=False):
                raise BadArgument(
                    f"{MODE} is {self.mode!r}, and there is no key of Weights & Biases; `wandb login` first. "
                    f"Without {MODE} the run is written offline, and `wandb sync` sends it later."
                )
        self.run: Any = None

    def open(self) -> int:
        """See Log.open."""
        import wandb

        self.state = self._state()
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            id=self.state["id"],
            name=os.environ.get("WANDB_NAME") or self.folder.path.resolve().name,
            dir=self.folder.path,
            mode=self.mode,  # type: ignore[arg-type, unused-ignore]
            resume=None if self.mode == "offline" else "allow",  # which asks the server
            config=settings_of(self.config),
            settings=wandb.Settings(silent=True, console="off"),  # the terminal is the run's
        )
        return int(self.state["written"])

    def _state(self) -> dict[str, Any]:
        """Return what is known of the run that stands here; a new id where nothing is."""
        try:
            found = json.loads((self.folder.path / STATE).read_text())
            return {"id": str(found["id"]), "written": int(found["written"]), "ended": found["ended"] is True}
        except FileNotFoundError:
            return {"id": os.environ.get("WANDB_RUN_ID") or os.urandom(4).hex(), "written": 0, "ended": False}

    def write(self, moment: Moment) -> None:
        """See Log.write."""
        import wandb

        told: dict[str, Any] = {"train/episodes": moment.episodes}
        if moment.metrics is not None:
            told |= grouped(moment.metrics)
        else:
            told |= measured_figures(self.figures)
        for name, interval in moment.heldout.items():
            told |= {f"heldout/{each}": value for each, value in bounded(name, interval).items()}
        if moment.played:
            told["watched"] = wandb.Table(columns=COLUMNS, data=list(_rows(moment.iteration, moment.played)))
        self.run.log(told, step=moment.iteration, commit=True)
        self.state["written"] = moment.iteration + 1
        self.folder.write(self.folder.path / STATE, self.state)

    def end(self, summary: Mapping[str, Any]) -> None:
        """See Log.end."""
        import wandb

        if not self.state["ended"]:  # else it was resumed behind its end, and this stands there
            history = self.folder.history()
            rows = [
                row
                for iteration in [0, *(metrics.iteration for metrics in history)]
                for row in _rows(iteration, transcripts(self.folder.watched, iteration))
            ]
            draw(history, self.figures, self.config, self.folder.curve, self.folder.evaluated())
            told = {
                "curve": wandb.Image(str(self.folder.curve)),
                "transcripts": wandb.Table(columns=COLUMNS, data=rows),
            }
            self.run.log(told, step=self.state["written"], commit=True)
            self.state["ended"] = True
            self.folder.write(self.folder.path / STATE, self.state)
        texts = {name: value for name, value in summary.items() if isinstance(value, str)}
        self.run.summary.update({**texts, **figures_of(summary)})
        self.run.finish()
        self.run = None

    def close(self) -> None:
        """See Watcher.close; a run that was interrupted is told as one that failed."""
        if self.run is not None:
            self.run.finish(exit_code=1)
            self.run = None


def _rows(iteration: int, played: Iterable[tuple[Entry, str]]) -> Iterable[list[Any]]:
    for entry, text in played:
        yield [
            *(iteration, entry.spec, str(entry.seed), str(entry.stop), entry.reward, entry.turns),
            text,
        ]
