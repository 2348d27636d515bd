"""What differs from upstream on purpose, and what is missing, as docs/guides/upgrading.md says it."""

import importlib.util
import random

import pytest

import gem
from gem.core import Env
from gem.errors import EpisodeOver, UnknownEnv
from gem.vector.sync_vector_env import SyncVectorEnv

GUESS = "game:GuessTheNumber-v0-easy"
ROWS = [{"problem": f"{n}?", "answer": str(n)} for n in range(5)]


def played(env, seed, actions=4):
    told = [env.reset(seed=seed)[0]]
    while len(told) <= actions:
        step = env.step(env.sample_random_action())
        told.append(step.obs)
        if step.done:
            break
    return told


@pytest.mark.parametrize(
    "env_id", ["game:Minesweeper-v0-easy", "game:Game2048-v0-easy", "game:Sokoban-v0-easy"]
)
def test_an_episode_follows_from_its_seed_alone_wherever_it_is_played(env_id):
    alone = played(gem.make(env_id), 7)
    other, env = gem.make(env_id), gem.make(env_id)
    other.reset(seed=1)
    other.step(other.sample_random_action())
    assert played(env, 7) == alone
    envs = SyncVectorEnv([env_id] * 2, [lambda: gem.make(env_id)] * 2)
    assert envs.reset(seed=[3, 7])[0][1] == alone[0]
    envs.close()


def test_the_callers_generators_are_left_alone():
    kept = random.getstate()
    played(gem.make("game:Sudoku-v0-easy"), 3)
    assert random.getstate() == kept


def test_a_budget_that_the_task_states_terminates():
    env = gem.make(GUESS, max_turns=1)
    env.reset(seed=0)
    step = env.step("\\boxed{11}")
    assert (step.terminated, step.truncated, step.info["stop"]) == (True, False, "turn_budget")


def test_a_question_that_is_answered_terminates_and_is_not_truncated():
    from gem.envs.math_env import MathEnv

    env = MathEnv(dataset=ROWS)
    env.reset(idx=1)
    assert env.step("\\boxed{1}")[2:4] == (True, False)


def test_a_finished_episode_is_not_stepped():
    env = gem.make(GUESS)
    env.reset(seed=0)
    env.step("nothing")
    with pytest.raises(EpisodeOver):
        env.step("\\boxed{1}")


def test_a_guess_of_zero_is_a_guess():
    env = gem.make(GUESS)
    env.reset(seed=0)
    step = env.step("\\boxed{0}")
    assert (step.done, step.reward) == (False, 0.0)


def test_clues_are_cells_that_are_given():
    env = gem.make("game:Sudoku-v0-easy", clues=9)
    board = env.reset(seed=0)[0]
    assert sum(cell.isdigit() and cell != "0" for cell in board.rpartition(":")[2].split()) in range(9, 18)


def test_a_game_is_won_when_its_goal_is_reached():
    env = gem.make("game:Minesweeper-v0-easy")
    returns = []
    for seed in range(12):
        env.reset(seed=seed)
        steps = [env.step(env.solve())]
        while not steps[-1].done:
            steps.append(env.step(env.solve()))
        if steps[-1].info["success"]:
            returns.append(sum(step.reward for step in steps))
    assert returns
    assert returns == pytest.approx([1.0] * len(returns))


def test_the_sandbox_isolates_by_every_name(tmp_path):
    from gem.utils.sandbox import run_python

    (tmp_path / "secret").write_text("told")
    program = f"print(open({str(tmp_path / 'secret')!r}).read())"
    for name in ("none", None):
        ok, out, _ = run_python(program, name, timeout=20)
        assert (ok, "told" in out) == (False, False)


def test_a_tools_timeout_holds_and_is_told():
    from gem.tools.python_code_tool import PythonCodeTool

    valid, error, text, _ = PythonCodeTool(timeout=1).execute_action("<python>while True: pass</python>")
    assert (valid, error) == (True, True)
    assert "more than 1 s" in text


def test_environments_print_nothing(capsys):
    env = gem.make("game:Sokoban-v0-easy")
    played(env, 1)
    env.close()
    assert capsys.readouterr() == ("", "")


def test_rows_are_drawn_anew_by_a_seed_and_walked_without_one():
    from gem.envs.math_env import MathEnv

    env = MathEnv(dataset=ROWS)
    assert sorted(env.reset(seed=n)[1]["task"] for n in range(5)) == list("01234")
    assert sorted(MathEnv(dataset=ROWS).reset(seed=n)[1]["task"] for n in range(5, 10)) == list("01234")
    fresh = MathEnv(dataset=ROWS)
    assert sorted(fresh.reset()[1]["task"] for _ in ROWS) == list("01234")


def test_questions_of_a_seed_are_others_than_the_packages():
    reasoning_gym = pytest.importorskip("reasoning_gym")
    data = reasoning_gym.create_dataset("chain_sum", size=20, seed=42)
    ours = gem.make("rg:chain_sum", size=20).dataset
    assert not {row["question"] for row in data} & {row["question"] for row in ours}


def test_what_an_observation_says_needs_no_suffix():
    env = gem.make("game:Sokoban-v0-easy")
    obs, info = env.reset(seed=0)
    assert "#" in obs
    assert "suffix" not in info


def test_constructor_keywords_of_our_own_take_the_seed_of_the_first_reset():
    from gem.envs.registration import ENV_REGISTRY

    env = gem.make("math:Arithmetic-v0-easy", seed=9)
    first = env.reset()[0]
    assert first == gem.make("math:Arithmetic-v0-easy").reset(seed=9)[0]
    assert "seed" not in ENV_REGISTRY["math:Arithmetic-v0-easy"].kwargs


def test_judges_of_several_agents_are_not_those_of_seats():
    from gem.multiagent import MultiAgentEnv
    from gem.seats import SeatedEnv

    assert not issubclass(SeatedEnv, MultiAgentEnv)
    assert issubclass(MultiAgentEnv, Env)


@pytest.mark.parametrize("env_id", ["webshop:full", "webshop:small-v0", "ta:GuessTheNumbers-v0"])
def test_ids_that_are_missing_are_refused_by_name(env_id):
    with pytest.raises(UnknownEnv, match="no environment"):
        gem.make(env_id)


@pytest.mark.parametrize(
    "module",
    [
        "gem.envs.webshop",
        "gem.envs.terminal.docker_env",
        "gem.envs.game_env.wikigame.errors",
        "gem.envs.game_env.wikigame.rewards",
    ],
)
def test_modules_that_are_missing_are_not_there(module):
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    assert found is None


def test_what_is_left_of_the_mathematics_grader():
    from gem.utils import math_grader

    assert math_grader.__all__ == ["boxed_reward_fn", "check_correct"]
    assert not hasattr(math_grader, "run_with_timeout_signal")


def test_private_methods_of_games_are_not_there():
    game = gem.make("game:FifteenPuzzle-v0-hard")
    assert not hasattr(game, "_get_empty_position")
    assert not hasattr(gem.make("game:Minesweeper-v0-easy"), "_is_solved")
