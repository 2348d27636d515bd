"""Loops, vectors, wrappers and helpers as upstream's examples and the trainers around it use them."""

import asyncio
from collections import deque

import numpy as np
import pytest

import gem
from gem import seeding
from gem.core import Env, EnvWrapper
from gem.envs.math_env import MathEnv
from gem.utils import debug
from gem.utils.constants import TERMINAL_STATE, LanguageGameReward
from gem.utils.parsing import extract_code_from_model, extract_last_boxed_answer, extract_last_tagged_answer
from gem.vector.async_vector_env import AsyncVectorEnv
from gem.vector.sync_vector_env import SyncVectorEnv
from gem.wrappers.wrapper_factory import TOKENIZER_REQUIRED, WRAPPER_FACTORY, get_wrapper_fns

GUESS = "game:GuessTheNumber-v0-easy"
GAMES = [i for i in gem.ids("game") if not i.startswith(("game:WordSearch", "game:Hangman", "game:Wordle"))]
KEYWORDS = [
    ("game:Game2048-v0-easy", {"target_tile": 32}),
    ("game:Sokoban-v0-easy", {"dim_room": (7, 8)}),
    ("game:FifteenPuzzle-v0-easy", {"init_algo": "mc", "mc_rand_moves": 20}),
    ("game:WikiGame-v0-easy", {"wiki_backend": "world"}),
    ("game:Crosswords-v0-easy", {"hardcore": False}),
    ("game:Mastermind-v0-easy", {"duplicate_numbers": True}),
    ("game:Sudoku-v0-easy", {"clues": 8, "scale": 4}),
    ("game:Minesweeper-v0-easy", {"rows": 4, "cols": 6, "num_mines": 3}),
    ("game:TowerofHanoi-v0-easy", {"num_disks": 2}),
    ("game:GuessTheNumber-v0-easy", {"min_number": 1, "max_number": 9}),
]


# -- games


@pytest.mark.filterwarnings("ignore:.*some episodes cannot be won")
@pytest.mark.parametrize("env_id", GAMES)
def test_every_game_takes_a_budget_of_three_turns(env_id):
    env = gem.make(env_id, max_turns=3)
    assert env.max_turns == 3
    env.reset(seed=1)
    steps = [env.step(env.sample_random_action())]
    while not steps[-1].done:
        steps.append(env.step(env.sample_random_action()))
    assert len(steps) <= 3


def test_a_budget_in_which_nobody_can_win_is_warned_of():
    with pytest.warns(UserWarning, match="some episodes cannot be won"):
        gem.make("game:Sudoku-v0-hard", max_turns=3)


@pytest.mark.parametrize(("env_id", "keywords"), KEYWORDS)
def test_games_take_upstreams_keywords(env_id, keywords):
    env = gem.make(env_id, **keywords)
    env.reset(seed=2)
    assert not env.step(env.solve()).truncated


def test_keywords_of_games_mean_what_they_say():
    assert "a tile of 32" in gem.make("game:Game2048-v0-easy", target_tile=32).reset(seed=0)[0]
    room = gem.make("game:Sokoban-v0-easy", dim_room=(5, 9))
    room.reset(seed=0)
    assert (room.level.height, room.level.width) == (5, 9)
    with pytest.raises(ValueError, match="wiki_backend is 'mediawiki'"):
        gem.make("game:WikiGame-v0-easy", wiki_backend="mediawiki")


@pytest.mark.system
def test_word_games_take_upstreams_keywords():
    pytest.importorskip("wordfreq")
    from gem.envs.games import words

    env = gem.make("game:Hangman-v0-hard", hardcore=True, only_real_words=True)
    env.reset(seed=0)
    assert env.secret not in words.common(7)
    assert "not in the list" in env.step("\\boxed{zzzzzzz}").obs
    while not (step := env.step(env.solve())).done:
        pass
    assert step.info["success"]
    strict, loose = (gem.make("game:Wordle-v0-easy", only_real_words=real) for real in (True, False))
    for env, refused in ((strict, True), (loose, False)):
        env.reset(seed=0)
        assert ("not in the list" in env.step("\\boxed{zzz}").obs) is refused


@pytest.mark.parametrize(
    "module",
    [
        "sokoban.SokobanEnv",
        "minesweeper.MinesweeperEnv",
        "game_2048.Game2048Env",
        "wikigame.WikiGameEnv",
        "tower_of_hanoi.TowerofHanoiEnv",
    ],
)
def test_game_classes_are_made_by_upstreams_names(module):
    place, name = module.split(".")
    game = getattr(__import__(f"gem.envs.game_env.{place}", fromlist=[name]), name)
    assert isinstance(game(), Env)
    assert game().reset(seed=1)[0]


def test_a_doubled_backslash_before_the_box_is_read():
    env = gem.make("game:FifteenPuzzle-v0-hard")
    env.reset(seed=0)
    step = env.step(env.sample_random_action().replace("\\", "\\\\"))
    assert not step.done


def test_rewards_have_upstreams_values():
    assert (LanguageGameReward.success_reward, LanguageGameReward.fail_reward) == (1.0, 0.0)
    env = gem.make(GUESS)
    env.reset(seed=0)
    assert env.step("no box").reward == LanguageGameReward.format_error_reward == -0.1


# -- loops


def test_the_loop_of_the_readme():
    env = gem.make("game:GuessTheNumber-v0")
    observation, _ = env.reset()
    while True:
        action = env.sample_random_action()
        observation, reward, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            break
    assert isinstance(observation, str)
    assert isinstance(reward, float)


def test_a_pool_of_environments_is_stepped_by_coroutines():
    """As RL2 does it: each coroutine borrows one of the pool, and gives it back at its end."""
    pool = []
    for idx in range(3):
        env = gem.make(env_id=GUESS, seed=233 + idx)
        for wrapper in get_wrapper_fns("", tokenizer=None):
            env = wrapper(env)
        pool.append(env)
    free, lock = deque(range(3)), asyncio.Semaphore(3)

    async def episode():
        async with lock:
            at = free.popleft()
            prompt, _ = pool[at].reset()
            prompts = [prompt]
            while True:
                await asyncio.sleep(0)
                prompt, _, terminated, truncated, _ = pool[at].step(pool[at].solve())
                prompts.append(prompt)
                if terminated or truncated:
                    free.append(at)
                    return prompts

    async def run():
        return await asyncio.gather(*(episode() for _ in range(9)))

    assert all(len(prompts) >= 2 for prompts in asyncio.run(run()))
    assert sorted(free) == [0, 1, 2]


def test_an_entry_point_is_the_function_make_itself():
    """As AgileRL does it: a constructor by name, called with the environment's configuration."""
    constructor = gem.make
    probe = constructor(env_id=GUESS)
    turns = probe.max_turns
    if hasattr(probe, "close"):
        probe.close()
    assert turns == 4


def test_seeds_tell_environments_of_a_pool_apart():
    first = [gem.make("game:GuessTheNumber-v0-hard", seed=n) for n in range(8)]
    again = [gem.make("game:GuessTheNumber-v0-hard", seed=n) for n in range(8)]
    for env in first + again:
        env.reset()
    assert len({env.secret for env in first}) > 3
    assert [env.secret for env in first] == [env.secret for env in again]


@pytest.mark.parametrize(
    "name",
    [
        "run_and_print_episode",
        "run_and_print_episode_with_random_selection",
        "run_and_print_episode_with_selective_step",
        "run_and_print_episode_async",
    ],
)
def test_vectors_are_watched_by_every_name(name, capsys):
    with gem.make_vec([GUESS] * 2) as envs:
        getattr(debug, name)(envs, lambda obs: ["\\boxed{5}"] * len(obs))
    assert "environment 1 action" in capsys.readouterr().out


# -- vectors


@pytest.mark.parametrize("async_mode", [False, True])
def test_a_vector_gives_lists_and_arrays(async_mode):
    with gem.make_vec([GUESS, "game:Sokoban-v0-easy"], async_mode=async_mode, seed=0) as envs:
        obs, infos = envs.reset(seed=3)
        assert (len(envs), envs.num_envs, envs.env_ids) == (2, 2, [GUESS, "game:Sokoban-v0-easy"])
        assert isinstance(obs, list)
        assert isinstance(infos, list)
        obs, rewards, terminated, truncated, infos = envs.step(["\\boxed{1}", "\\boxed{up}"])
        assert [type(each) for each in (rewards, terminated, truncated)] == [np.ndarray] * 3
        assert (rewards.shape, terminated.dtype, truncated.dtype) == ((2,), bool, bool)
        assert [type(info) for info in infos] == [dict] * 2


def test_a_vector_is_stepped_by_index_in_the_order_given():
    with gem.make_vec([GUESS] * 3, seed=0) as envs:
        envs.reset(seed=[5, 6, 7])
        obs, rewards, *_ = envs.step({2: "\\boxed{1}", 0: "\\boxed{2}"})
        assert len(obs) == len(rewards) == 2
        assert "1" in obs[0]


def test_a_vector_is_reset_with_keywords_for_one_environment():
    rows = [{"problem": f"{n}?", "answer": str(n)} for n in range(4)]
    from gem.envs.math_env import MathEnv

    envs = SyncVectorEnv(["a", "b"], [lambda: MathEnv(dataset=rows)] * 2)
    obs, _ = envs.reset(seed=1, env0_kwargs={"idx": 3}, env1_kwargs={"idx": 2})
    assert [text[:2] for text in obs] == ["3?", "2?"]
    with pytest.raises(ValueError, match="env7_kwargs"):
        envs.reset(env7_kwargs={"idx": 0})
    envs.close()


@pytest.mark.parametrize("made", [SyncVectorEnv, AsyncVectorEnv])
def test_vectors_are_made_of_ids_and_functions(made):
    envs = made([GUESS] * 2, [lambda: gem.make(GUESS)] * 2)
    assert envs.env_ids == [GUESS] * 2
    assert len(envs.reset(seed=0)[0]) == 2
    envs.close()


def test_keywords_of_each_environment_are_its_own_and_are_not_changed():
    given = [{"max_turns": 1}, {"max_turns": 2}]
    with gem.make_vec([GUESS] * 2, vec_kwargs=given, seed=0) as envs:
        envs.reset()
        terminated = envs.step(["\\boxed{99}", "\\boxed{99}"])[2]
    assert terminated.tolist() == [True, False]
    assert given == [{"max_turns": 1}, {"max_turns": 2}]


def test_a_seed_of_each_environment_is_its_first():
    with gem.make_vec(
        [GUESS] * 3, vec_kwargs=[{"seed": 5}, {"max_turns": 2}, {"seed": 5 + 2}], seed=1
    ) as envs:
        envs.reset()
        assert [env.seed for env in envs.envs] == [5, seeding.derive(1, "env", 1), 7]
        assert envs.envs[1].max_turns == 2
    with gem.make_vec([GUESS], vec_kwargs=[{"seed": 5}]) as envs:
        assert envs.reset()[0] == [gem.make(GUESS, seed=5).reset()[0]]
    with pytest.raises(gem.errors.BadArgument, match="seed"):
        gem.make_vec([GUESS], vec_kwargs=[{"seed": -1}])


def test_a_seed_reaches_a_constructor_of_a_vector_that_takes_one():
    rows = [{"question": f"{n}?", "answer": str(n)} for n in range(20)]
    from gem.envs.qa_env import QaEnv

    gem.register("upstream:Rows", QaEnv, dataset=rows)
    try:
        with gem.make_vec(["upstream:Rows"] * 2, vec_kwargs=[{"seed": 3}, {"seed": 4}]) as envs:
            envs.reset()
            assert [env.seed for env in envs.envs] == [3, 4]
            orders = [
                [gem.make("upstream:Rows", seed=0).spawn(seed=s).reset(seed=n)[0] for n in range(9)]
                for s in (3, 4)
            ]
        assert orders[0] != orders[1]
    finally:
        del gem.registry.ENV_REGISTRY["upstream:Rows"]


@pytest.mark.parametrize("env_id", [GUESS, "game:Sokoban-v0-easy", "game:Sudoku-v0-easy"])
def test_an_environment_is_spawned_with_a_seed(env_id):
    env = gem.make(env_id)
    twin = env.spawn(seed=7)
    assert twin.seed == 7
    assert twin.reset()[0] == gem.make(env_id).reset(seed=7)[0]
    wrapped = gem.wrappers.wrapper_factory.get_wrapper_fns("concat")[0](env).spawn(seed=7)
    assert wrapped.reset()[0] == twin.reset(seed=7)[0]
    with pytest.raises(TypeError, match="does not take 'sed'"):
        env.spawn(sed=7)


def test_keywords_that_upstreams_scripts_give_to_every_environment_are_dropped_with_a_warning():
    with pytest.warns(UserWarning, match="'use_mp'|'dataset'") as told:
        env = gem.make(GUESS, use_mp=False, dataset=None)
    assert len(told) == 2
    assert env.spec.kwargs == gem.spec(GUESS).kwargs
    with pytest.raises(TypeError, match="'dataset'"):
        gem.make(GUESS, dataset=[{"problem": "1?", "answer": "1"}])
    assert MathEnv(dataset=[{"problem": "1?", "answer": "1"}], use_mp=False).reset(seed=0)


def test_the_last_observation_and_info_survive_the_autoreset():
    with gem.make_vec([GUESS], vec_kwargs=[{"max_turns": 1}], seed=0) as envs:
        envs.reset()
        obs, _, _, _, infos = envs.step(["\\boxed{11}"])
    assert obs[0] != infos[0]["final_obs"]
    assert infos[0]["final_info"]["success"] is False


# -- wrappers


@pytest.mark.parametrize(
    "name",
    [
        "concat",
        "concat_with_action",
        "concat_chat",
        "concat_chat_on_reset",
        "episode_tracking",
        "python_tool",
        "python_tool_no_int_reward",
        "python_tool_no_int_reward_last_line_error",
        "search_tool",
        "search_tool_no_int_reward",
    ],
)
def test_every_name_of_the_factory_is_there(name):
    assert callable(WRAPPER_FACTORY[name])
    assert (name in TOKENIZER_REQUIRED) == name.startswith("concat_chat")


def test_names_are_a_list_with_commas():
    env = gem.make(GUESS)
    for wrapper in get_wrapper_fns("concat_with_action, episode_tracking"):
        env = wrapper(env)
    first, _ = env.reset(seed=0)
    obs, _, _, _, info = env.step("\\boxed{5}")
    assert obs.startswith(first)
    assert "\\boxed{5}" in obs
    assert (info["step_counter"], info["prev_ep_step_counter"]) == (1, None)
    assert {"cumulative_rewards", "prev_ep_cumulative_rewards"} <= set(info)


def test_wrappers_read_through_live_where_upstream_copied():
    env = EnvWrapper(gem.make(GUESS))
    env.reset(seed=0)
    env.step("\\boxed{11}")
    assert env.turn == env.env.turn == 1
    assert env.unwrapped is env.env


# -- helpers


@pytest.mark.parametrize(
    ("text", "boxed"),
    [
        ("\\boxed{1} and \\boxed{2}", "2"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("none", None),
        ("\\boxed{", None),
        ("\\\\boxed{3}", "3"),
    ],
)
def test_the_last_box_is_read(text, boxed):
    assert extract_last_boxed_answer(text) == boxed


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\nx = 1\n```", "x = 1"),
        ("```py\nx = 2\n```", "x = 2"),
        ("```\nx = 3\n```", "x = 3"),
        ("none", None),
        ("```python\na\n```\n```python\nb\n```", "b"),
    ],
)
def test_the_last_program_is_read(text, code):
    assert extract_code_from_model(text) == code


def test_tags_are_read():
    assert extract_last_tagged_answer("<answer>a</answer><answer>b</answer>", "answer") == "b"
    assert isinstance(TERMINAL_STATE, str)


@pytest.mark.parametrize(
    ("code", "ok", "out"),
    [("print(6 * 7)", True, "42\n"), ("1 / 0", False, ""), ("print(input())", True, "typed\n")],
)
def test_programs_are_run(code, ok, out):
    from gem.utils.sandbox import run_python

    ran = run_python(code, "none", stdin="typed", timeout=20)
    assert (ran[0], ran[1]) == (ok, out)
    assert ("ZeroDivisionError" in ran[2]) is (not ok)
