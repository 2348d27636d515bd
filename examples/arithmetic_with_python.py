"""Train a language model to compute with Python: SmolLM2-135M on math:Arithmetic-v0-easy.

At first the model answers none of these questions. A teacher plays a few hundred episodes: it calls Python
with the sum, then copies the printed result. The model is trained on some of them, to learn the form of a
call, and then learns from its own episodes. The questions of the teacher, of training and of the final table
have different seeds.

    python examples/arithmetic_with_python.py [--out runs/arithmetic]

Needs: pip install 'gem-gym[llm,sandbox]', gem-gym models --fetch smollm2. No other framework.
"""

import argparse
import re
from pathlib import Path

from rich.console import Console

from gem import seeding
from gem.agents import ScriptedAgent
from gem.content import text_of
from gem.record import Ask
from gem.registry import Maker
from gem.rollout import EpisodeStore, Job, Runner
from gem.train.config import TrainConfig
from gem.train.config_file import read_config
from gem.train.progress import Terminal
from gem.train.trainer import train

CONFIG = Path(__file__).parent / "configs/arithmetic-with-python.toml"


def teacher(ask: Ask) -> str:
    """Call Python with the sum that is asked for, then give what it printed."""
    said = text_of(ask.messages[-1].content)
    if ask.turn == 0:
        return f"<python>{re.search(r'Calculate (.+)[.]', said)[1]}</python>"
    return f"\\boxed{{{re.search(r'-?[0-9]+', said)[0]}}}"


def write_demos(out: Path, episodes: int) -> None:
    """Store episodes that the teacher plays."""
    settings = read_config(CONFIG)
    maker = Maker(settings["env"], wrappers=tuple(f"{tool}_tool" for tool in settings["tools"]))
    jobs = [Job(maker, seeding.derive(0, "teacher", i)) for i in range(episodes)]
    with EpisodeStore(out) as store, Runner(ScriptedAgent(teacher), store=store, resume=True) as runner:
        played = runner.play(jobs)
    print(f"the teacher solved {sum(episode.success for episode in played)} of {len(played)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/arithmetic"))
    parser.add_argument("--episodes", type=int, default=640, help="episodes to learn from after the warm-up")
    parser.add_argument("--warmup-steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    demos = given.out.with_name(f"{given.out.name}-demos.jsonl")
    demos.parent.mkdir(parents=True, exist_ok=True)
    write_demos(demos, 256)
    settings = {"warmup_steps": given.warmup_steps, "episodes": given.episodes, "seed": given.seed}
    config = TrainConfig.fit(**{**read_config(CONFIG), **settings, "demos": demos, "out": given.out})
    summary = train(config, watcher=Terminal(Console()))
    for stage in ("before", "after", "greedy"):
        if stage in summary:
            success = summary[stage]["success"]
            print(f"{stage:7}{success['mean']:.1%} ({success['low']:.1%} to {success['high']:.1%})")


if __name__ == "__main__":
    main()
