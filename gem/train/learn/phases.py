"""Later phases of a run: training goes on from its last checkpoint, with schedules of its own.

A phase has a folder of its own in the run's folder, ``phases/NAME``, with all files of a run; the files of
earlier phases stay as they are. Iterations, episodes and seeds are counted on, so nothing is drawn twice, and
optimiser, curriculum and opponents go on. Schedules begin anew, over the iterations of the phase. Divergence
is measured from the policy at the beginning of the phase.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

from gem.errors import BadArgument
from gem.train.config import TrainConfig
from gem.train.learn import checkpoint, parallel
from gem.train.learn.trainer import Trainer
from gem.train.report.figures import take_policy_figures, tell_figures
from gem.train.report.run_folder import RunFolder

MAY_CHANGE = (
    *(
        "episodes",
        "lr",
        "lr_ramp",
        "lr_end",
        "lr_schedule",
        "kl",
        "kl_schedule",
        "kl_estimator",
        "kl_reward",
        "entropy",
        "entropy_schedule",
    ),
    *(
        "epochs",
        "minibatch",
        "clip",
        "clip_high",
        "max_grad_norm",
        "importance_cap",
        "eval_every",
        "patience",
    ),
    *("target", "save_every", "callback"),
)
"""The settings that a later phase may have of its own."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def plan_phase(run: RunFolder, before: RunFolder, config: TrainConfig, name: str = "") -> TrainConfig:
    """Return the config of a new phase of `run`, with its folder; `before` is that of its newest phase.

    Raises:
        BadArgument: for a name that is taken or no name of a folder, a setting that a phase cannot change, or
            no more episodes than were played already.
        StoreError: when there is no checkpoint to go on from.
    """
    stored = before.read_config(trust=True)
    changed = [each for each in config.differences(stored) if each not in MAY_CHANGE]
    if changed:
        raise BadArgument(
            f"{changed[0]} is {getattr(config, changed[0])!r}, and the run in {run.path} has "
            f"{getattr(stored, changed[0])!r}; a later phase may change {', '.join(MAY_CHANGE)}. Leave it "
            "out, or start a new run from its weights (--from)."
        )
    name = name or f"phase-{len(run.later_phases) + 2}"
    if not NAME.fullmatch(name) or (run.phases / name / run.phase.name).exists():
        taken = ", ".join(each.phase_name for each in run.later_phases)
        raise BadArgument(
            f"phase is {name!r}; accepted: a name of letters, digits and -_. that no other phase has"
            f"{f' ({taken})' if taken else ''}."
        )
    played = checkpoint.load(before.checkpoint)["iteration"] * stored.batch
    if config.episodes <= played:
        raise BadArgument(
            f"episodes is {config.episodes}, and the run in {run.path} has played {played}; a later phase "
            "takes more, counted from the beginning of the run."
        )
    return replace(config, out=run.phases / name)


def begin_phase(trainer: Trainer, config: TrainConfig, before: RunFolder) -> None:
    """Begin a phase from the checkpoint of `before`, up to the start of its loop.

    Raises:
        SchemaMismatch, StoreError: for a checkpoint that cannot be read.
    """
    folder = trainer.folder
    state = checkpoint.load(before.checkpoint)
    with checkpoint.explain_damage(before.checkpoint):
        trainer.learner.load(state, str(before.checkpoint))
        trainer.iteration = state["iteration"]
        trainer.cpu_s, trainer.wall_s = state["cpu_s"], state["wall_s"]
        figures = state["figures"]
    if parallel.rank() == 0:
        folder.begin(config)
        folder.write(folder.phase, {"after_iteration": trainer.iteration})
        if before.pool.is_dir():
            shutil.copytree(before.pool, folder.pool, dirs_exist_ok=True)
    parallel.wait()
    folder.__dict__.pop("first_iteration", None)  # it was no phase before
    if "schedule" in state:
        trainer.schedule.load(state["schedule"])
    trainer.learner.publish(trainer.iteration)
    kept = ("random", "optimum")  # of these nothing has changed
    trainer.figures = {name: figures[name] for name in kept if name in figures}
    if "environments" in figures:
        trainer.figures["environments"] = {
            label: {name: each[name] for name in kept if name in each}
            for label, each in figures["environments"].items()
        }
    trainer.watcher.begun(folder, config, [])
    tell_figures(trainer)
    trainer.watcher.stage(f"phase {folder.phase_name}, after iteration {trainer.iteration}")
    with trainer.count_time():
        take_policy_figures(trainer, "before", "before_greedy")
    trainer.hold_reference()
    trainer.learner.moved = False  # the policy is the reference again
    if config.staleness:
        trainer.refresh_sampler()
    trainer.evaluate()
    trainer.save()
