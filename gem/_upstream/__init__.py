"""Module names that scripts bring from upstream or from earlier versions, and what they give here.

`TABLE` lists them. A finder at the end of `sys.meta_path` serves them, so that no file of theirs stands
between the modules of gem. What has no other place here is in this folder.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

EARLIER = {
    "gem.train.alarms": "gem.train.report.alarms:Alarm,alarms",
    "gem.train.callbacks": "gem.train.report.callbacks:Callback",
    "gem.train.config_file": "gem.train.config.toml_file:read_config,read_configs,to_toml",
    "gem.train.learner": "gem.train.learn.learner:Critic,Learner,Settings",
    "gem.train.loggers": "gem.train.report.loggers:Log",
    "gem.train.mixture": "gem.train.config.env_part:EnvPart gem.train.tasks.mixture:Shares,TokenShares",
    "gem.train.policy": "gem.train.learn.policy:Policy,make_policy",
    "gem.train.policy_gradient": "gem.train.learn.policy_gradient:learn",
    "gem.train.run": "gem.train.report.run_folder:Evaluation,Metrics,RunFolder",
    "gem.train.steps": "gem.train.learn.steps:Progress,Steps",
    "gem.train.trainer": "gem.train.learn.trainer:Trainer gem.train.learn.training:train,trained_agent",
    "gem.train.watcher": "gem.train.report.watcher:Watcher",
}
"""Documented modules of earlier versions, in the same form as `TABLE`."""

MULTIAGENT = "gem._upstream.multi_agent_env:AgentSelector,MultiAgentEnv"
SERVER = "gem._upstream.search_server:main"
PROGRAMS = {
    "gem.tools.search_engine.google_search_server": "google",
    "gem.tools.search_engine.retrieval_server": None,
    "gem.tools.search_engine.serp_search_server": "serpapi",
}
"""The modules that ``python -m`` runs, and the search engine of each; None: as the command line says."""

TABLE = {
    **EARLIER,
    "gem.envs.code_env": "gem.envs.code.env:CodeBasics,CodeEnv",
    "gem.envs.game_env": "",
    "gem.envs.game_env.crosswords": "gem.envs.games.crosswords:CrosswordsEnv=Crosswords",
    "gem.envs.game_env.fifteen_puzzle": "gem.envs.games.fifteen_puzzle:FifteenPuzzleEnv=FifteenPuzzle",
    "gem.envs.game_env.game_2048": "gem.envs.games.game_2048:Game2048Env=Game2048",
    "gem.envs.game_env.guess_the_number": "gem.envs.games.guess_the_number:GuessTheNumberEnv=GuessTheNumber",
    "gem.envs.game_env.hangman": "gem.envs.games.hangman:HangmanEnv=Hangman",
    "gem.envs.game_env.mastermind": "gem.envs.games.mastermind:MastermindEnv=Mastermind",
    "gem.envs.game_env.minesweeper": "gem.envs.games.minesweeper:MinesweeperEnv=Minesweeper",
    "gem.envs.game_env.sokoban": "gem.envs.games.sokoban:SokobanEnv=Sokoban",
    "gem.envs.game_env.sudoku": "gem.envs.games.sudoku:SudokuEnv=Sudoku",
    "gem.envs.game_env.tower_of_hanoi": "gem.envs.games.tower_of_hanoi:TowerofHanoiEnv=TowerOfHanoi",
    "gem.envs.game_env.wikigame": "gem.envs.games.wiki_game:WikiGameEnv=WikiGame",
    "gem.envs.game_env.word_search": "gem.envs.games.word_search:WordSearchEnv=WordSearch",
    "gem.envs.game_env.wordle": "gem.envs.games.wordle:WordleEnv=Wordle",
    "gem.envs.math_env": "gem.envs.math.env:ArithmeticEnv,MathEnv,WordProblemsEnv",
    "gem.envs.math_visual_env": "gem.envs.vision.env:ChartsEnv,GeometryEnv,MathVisualEnv",
    "gem.envs.mcpmark": "gem.envs.database.mcp:MCPMarkEnv=McpPostgresEnv",
    "gem.envs.multiagent": MULTIAGENT,
    "gem.envs.multiagent.multi_agent_env": MULTIAGENT,
    "gem.envs.qa_env": "gem.envs.qa.env:FactsEnv,QaEnv",
    "gem.envs.reasoning_gym": "gem.envs.bridges.reasoning_gym:ReasoningGymEnv",
    "gem.envs.registration": (
        "gem.registry:ENV_REGISTRY,make,print_envs,register gem.specs:EnvSpec gem.vector:make_vec"
    ),
    "gem.multiagent": MULTIAGENT,
    "gem.tools.search_engine": SERVER,
    **dict.fromkeys(PROGRAMS, SERVER),
    "gem.utils": "",
    "gem.utils.constants": "gem._upstream.definitions:LanguageGameReward,TERMINAL_STATE",
    "gem.utils.debug": (
        "gem._upstream.printing:run_and_print_episode,run_and_print_episode_async,"
        "run_and_print_episode_with_random_selection,run_and_print_episode_with_selective_step"
    ),
    "gem.utils.math_grader": "gem.graders.math:boxed_reward_fn,check_correct",
    "gem.utils.parsing": (
        "gem._upstream.definitions:extract_code_from_model "
        "gem.parsing:extract_last_boxed_answer=boxed,extract_last_tagged_answer=tagged"
    ),
    "gem.utils.qa_em": "gem._upstream.definitions:em_check",
    "gem.utils.sandbox": "gem.tools.python_code_tool:run_python",
    "gem.utils.seeding": "gem._upstream.definitions:set_seed",
    "gem.vector.async_vector_env": "gem.vector.vector_env:AsyncVectorEnv",
    "gem.vector.sync_vector_env": "gem.vector.vector_env:SyncVectorEnv",
}
"""Names by module, as words ``module:name,name``; ``Name=other`` is another name for `other`. A module
without names is a package that only has modules."""


class Finder:
    """A finder and loader of the modules in `TABLE`. A name is looked up in its real module at first use."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module in `TABLE`."""
        if name not in TABLE:
            return None
        package = any(other.startswith(f"{name}.") for other in TABLE)
        return ModuleSpec(name, Finder, origin=TABLE[name], is_package=package)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Leave the making of the module to the import system."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Give a module its names, without loading the modules that define them."""
        places = {}
        for word in TABLE[module.__name__].split():
            home, _, names = word.partition(":")
            for pair in names.split(","):
                name, _, defined = pair.partition("=")
                places[name] = home, defined or name

        def look_up(name: str) -> Any:
            if name not in places:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            home, defined = places[name]
            __import__(home)
            value = getattr(sys.modules[home], defined)
            setattr(module, name, value)
            return value

        module.__doc__ = f"Another place of {TABLE[module.__name__]}."
        vars(module).update({"__all__": [*places], "__getattr__": look_up})

    @staticmethod
    def get_code(name: str) -> CodeType:
        """Return the code of a module that ``python -m`` runs.

        Raises:
            ImportError: for a module that is no program.
        """
        if name not in PROGRAMS:
            raise ImportError(f"{name} is no program.")
        run = f"from gem._upstream.search_server import main; main({PROGRAMS[name]!r})"
        return compile(f"if __name__ == '__main__': {run}", name, "exec")


def serve() -> None:
    """Make the modules importable."""
    if Finder not in sys.meta_path:
        sys.meta_path.append(Finder)
