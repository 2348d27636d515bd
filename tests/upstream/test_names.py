"""Names that scripts bring from upstream: each is at its place, and does what its name says."""

import importlib
import random

import pytest

import gem

NAMES = """
gem.core: ActType Env EnvWrapper ObsType
gem.envs.code_env: CodeEnv
gem.envs.game_env.crosswords: CrosswordsEnv
gem.envs.game_env.fifteen_puzzle: FifteenPuzzleEnv
gem.envs.game_env.game_2048: Game2048Env
gem.envs.game_env.guess_the_number: GuessTheNumberEnv
gem.envs.game_env.hangman: HangmanEnv
gem.envs.game_env.mastermind: MastermindEnv
gem.envs.game_env.minesweeper: MinesweeperEnv
gem.envs.game_env.sokoban: SokobanEnv
gem.envs.game_env.sudoku: SudokuEnv
gem.envs.game_env.tower_of_hanoi: TowerofHanoiEnv
gem.envs.game_env.wikigame: WikiGameEnv
gem.envs.game_env.word_search: WordSearchEnv
gem.envs.game_env.wordle: WordleEnv
gem.envs.math_env: MathEnv
gem.envs.math_visual_env: MathVisualEnv
gem.envs.multiagent.multi_agent_env: AgentSelector MultiAgentEnv
gem.envs.multiagent: AgentSelector MultiAgentEnv
gem.envs.qa_env: QaEnv
gem.envs.reasoning_gym: ReasoningGymEnv
gem.envs.registration: ENV_REGISTRY EnvSpec make make_vec print_envs register
gem.multiagent: AgentSelector MultiAgentEnv
gem.tools.base_tool: BaseTool
gem.tools.mcp_server.time_mcp: app
gem.tools.mcp_tool: MCPTool
gem.tools.python_code_tool: PythonCodeTool
gem.tools.search_tool: SearchTool
gem.tools.tool_env_wrapper: ToolEnvWrapper
gem.utils.constants: LanguageGameReward TERMINAL_STATE
gem.utils.debug: run_and_print_episode run_and_print_episode_async run_and_print_episode_with_selective_step
gem.utils.math_grader: boxed_reward_fn
gem.utils.parsing: extract_code_from_model extract_last_boxed_answer extract_last_tagged_answer
gem.utils.qa_em: em_check
gem.utils.sandbox: run_python
gem.utils.seeding: set_seed
gem.vector.async_vector_env: AsyncVectorEnv
gem.vector.sync_vector_env: SyncVectorEnv
gem.vector.vector_env: AutoresetMode VectorEnv
gem.vector: AsyncVectorEnv AutoresetMode SyncVectorEnv VectorEnv
gem.wrappers.episode_tracking_wrapper: EpisodeTrackingWrapper
gem.wrappers.observation_wrapper: ObservationWrapper
gem.wrappers.wrapper_factory: TOKENIZER_REQUIRED WRAPPER_FACTORY get_wrapper_fns
gem: Env make make_vec print_envs register
"""
PLACES = [
    (module, name)
    for line in NAMES.strip().splitlines()
    for module, _, names in [line.partition(": ")]
    for name in names.split()
]
NEEDS = {  # what other packages a module is about
    "gem.envs.reasoning_gym": "reasoning_gym",
    "gem.tools.mcp_server.time_mcp": "mcp",
    **{f"gem.envs.game_env.{game}": "wordfreq" for game in ("hangman", "word_search", "wordle")},
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")  # of what is imported
@pytest.mark.parametrize(("module", "name"), PLACES)
def test_a_name_is_at_its_place(module, name):
    if module in NEEDS:
        pytest.importorskip(NEEDS[module])
    assert getattr(importlib.import_module(module), name) is not None


def test_a_name_that_upstream_does_not_have_is_refused():
    import gem.vector

    with pytest.raises(AttributeError, match="no attribute 'SyncVectorEnvs'"):
        _ = gem.vector.SyncVectorEnvs


def test_the_registry_is_the_one():
    from gem.envs.registration import ENV_REGISTRY, make, register

    assert "game:Sudoku-v0-easy" in ENV_REGISTRY
    assert ENV_REGISTRY.get("game:Sudoku-v0-easy").entry_point.endswith(":Sudoku")
    assert (make, register) == (gem.make, gem.register)
    env = gem.make(env_id="game:GuessTheNumber-v0-easy")
    assert (env.env_id, env.entry_point) == (env.spec.id, env.spec.entry_point)


def test_parsers():
    from gem.utils.parsing import (
        extract_code_from_model,
        extract_last_boxed_answer,
        extract_last_tagged_answer,
    )

    assert extract_last_boxed_answer("\\boxed{1} \\boxed{2}") == "2"
    assert extract_last_boxed_answer("none") is None
    assert extract_code_from_model("```py\nx = 1\n```\n```text\nout\n```") == "x = 1"
    assert extract_code_from_model("```\nx = 1\n```") == "x = 1"
    assert extract_last_tagged_answer("<answer>a</answer>", "answer") == "a"


def test_constants():
    from gem.utils.constants import TERMINAL_STATE, LanguageGameReward

    assert isinstance(TERMINAL_STATE, str)
    assert LanguageGameReward.success_reward == 1.0
    assert LanguageGameReward.format_error_reward == -0.1
    assert LanguageGameReward.fail_reward == LanguageGameReward.invalid_action_reward == 0.0
    assert LanguageGameReward.internal_step_reward == 0.0


def test_exact_match():
    from gem.utils.qa_em import em_check

    assert em_check("the  Eiffel tower.", ["Big Ben", "Eiffel Tower"])
    assert not em_check("Eiffel", "Eiffel Tower")


def test_set_seed_seeds_the_scripts_own_generators():
    from gem.utils.seeding import set_seed

    numpy = pytest.importorskip("numpy")
    kept = random.getstate(), numpy.random.get_state()
    try:
        drawn = []
        for _ in range(2):
            set_seed(7)
            drawn.append((random.getrandbits(64), int(numpy.random.randint(2**31))))
        assert drawn[0] == drawn[1]
    finally:
        random.setstate(kept[0])
        numpy.random.set_state(kept[1])


def test_an_episode_is_printed(capsys):
    from gem.utils.debug import run_and_print_episode

    env = gem.make("game:GuessTheNumber-v0-easy", seed=0)
    run_and_print_episode(env, lambda _: env.sample_random_action())
    out = capsys.readouterr().out
    assert out.startswith("observation: ")
    assert out.rstrip().endswith("terminated True, truncated False")
    run_and_print_episode(env, lambda _: "\x1b[2J", ignore_done=True, max_steps=3)
    out = capsys.readouterr().out
    assert out.count("terminated True") == 3
    assert "\x1b" not in out


@pytest.mark.parametrize("how", ["run_and_print_episode_async", "run_and_print_episode_with_selective_step"])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_a_vector_is_printed(how, num_envs, capsys):
    from gem.utils import debug

    with gem.make_vec("game:GuessTheNumber-v0-easy", num_envs=num_envs) as envs:
        getattr(debug, how)(envs, lambda obs: ["\\boxed{5}"] * len(obs))
        out = capsys.readouterr().out
        for i in range(num_envs):
            assert f"environment {i} action" in out
        assert out.count("terminated True") >= num_envs
