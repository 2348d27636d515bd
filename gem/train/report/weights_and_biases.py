"""The logger `--log wandb`: a run of Weights & Biases, offline unless ``WANDB_MODE`` says otherwise.

Offline it needs no account, and nothing leaves the machine. The run is written to the folder ``wandb`` in the
run's own, and ``wandb sync`` uploads it later. A resumed run keeps its id, and writes a further file.
``WANDB_PROJECT``, ``WANDB_ENTITY`` and W&B's other variables work as usual.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gem.errors import BadArgument, missing_extra
from gem.rollout.index import Entry
from gem.train.report.loggers import (
    Log,
    Moment,
    figures_of,
    flatten_intervals,
    group_metrics,
    measured_figures,
    settings_of,
    transcripts,
)
from gem.train.report.progress import draw

STATE = "wandb.json"
"""The file in the run's folder that holds the id, how many moments are written, and the open session."""
PROJECT = "gem"
MODE = "WANDB_MODE"
COLUMNS = ["iteration", "environment", "seed", "end", "return", "turns", "transcript"]


class WeightsAndBiases(Log):
    """A log of settings, figures, transcripts as tables, and the learning curve as a picture."""

    def __init__(self) -> None:
        """Check that the package is installed; no run is started yet.

        Raises:
            MissingExtra: when it is not installed.
            BadArgument: when a run is online and there is no API key.
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
                    f"{MODE} is {self.mode!r}, and there is no API key for Weights & Biases; run "
                    f"`wandb login`. Without {MODE} the run is written offline, and `wandb sync` uploads it "
                    "later."
                )
        self.run: Any = None

    def open(self) -> int:
        """See Log.open."""
        import wandb

        self.state = self._state()
        self._take_back()
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
        self.state |= {"session": Path(self.run.settings.sync_dir).name, "began": self.state["written"]}
        self._note()
        return int(self.state["written"])

    def _take_back(self) -> None:
        """Go back to where the last session began, if it was killed.

        W&B writes late, so its file may lack what a killed session logged. This is logged again, and the file
        is removed. If the session was online or was synchronised, what is missing stays missing.
        """
        if not self.state["session"]:
            return
        session = self.folder.path / "wandb" / Path(self.state["session"]).name
        if session.name.startswith("offline-run-") and not list(session.glob("*.synced")):
            shutil.rmtree(session, ignore_errors=True)
            self.state["written"] = self.state["began"]

    def _note(self) -> None:
        self.folder.write(self.folder.path / STATE, self.state)

    def _state(self) -> dict[str, Any]:
        """Return the stored state of the run in the folder; a new id where there is none."""
        try:
            state = json.loads((self.folder.path / STATE).read_text())
            return {
                "id": str(state["id"]),
                "written": int(state["written"]),
                "ended": state["ended"] is True,
                "session": str(state["session"]),
                "began": int(state["began"]),
            }
        except FileNotFoundError:
            new = os.environ.get("WANDB_RUN_ID") or os.urandom(4).hex()
            return {"id": new, "written": 0, "ended": False, "session": "", "began": 0}

    def write(self, moment: Moment) -> None:
        """See Log.write."""
        import wandb

        figures: dict[str, Any] = {"train/episodes": moment.episodes}
        if moment.metrics is not None:
            figures |= group_metrics(moment.metrics)
        else:
            figures |= measured_figures(self.figures)
        figures |= flatten_intervals("heldout", moment.heldout)
        if moment.played:
            figures["watched"] = wandb.Table(
                columns=COLUMNS, data=list(_rows(moment.iteration, moment.played))
            )
        self.run.log(figures, step=moment.iteration, commit=True)
        self.state["written"] = moment.iteration + 1
        self._note()

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
            media = {
                "curve": wandb.Image(str(self.folder.curve)),
                "transcripts": wandb.Table(columns=COLUMNS, data=rows),
            }
            self.run.log(media, step=self.state["written"], commit=True)
            self.state["ended"] = True
        texts = {name: value for name, value in summary.items() if isinstance(value, str)}
        self.run.summary.update({**texts, **figures_of(summary)})
        self._finish(0)

    def close(self) -> None:
        """See Watcher.close; a run that was interrupted is marked as failed."""
        if self.run is not None:
            self._finish(1)

    def _finish(self, code: int) -> None:
        """Close the session's file: it then holds all that was logged."""
        self.run.finish(exit_code=code)
        self.run = None
        self.state["session"] = ""
        self._note()


def _rows(iteration: int, played: Iterable[tuple[Entry, str]]) -> Iterable[list[Any]]:
    for entry, text in played:
        yield [
            *(iteration, entry.spec, str(entry.seed), str(entry.stop), entry.reward, entry.turns),
            text,
        ]
