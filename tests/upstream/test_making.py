"""Scripts that list, register and make environments as they did with upstream."""

import subprocess
import sys

import pytest

import gem
from gem.core import Env
from gem.envs.registration import ENV_REGISTRY, EnvSpec, make, register
from gem.errors import BadAction, UnknownEnv
from gem.utils.constants import TERMINAL_STATE


class OneTurn(Env):
    """A single-turn environment as people generate them by the hundred."""

    def __init__(self, max_turns=1, seed=0, greeting="hi", **_):
        super().__init__()
        self.max_turns = max_turns
        self.seed = seed
        self.greeting = greeting
        self.drawn_with = seed

    def reset(self, seed=None):
        super().reset(seed)
        return f"{self.greeting} {self.rng.randrange(100)}", {"env_instruction": "say yes"}

    def step(self, action):
        return TERMINAL_STATE, float("yes" in action), True, True, {"metrics": {"success": "yes" in action}}


@pytest.fixture
def registered():
    register("bare_name", entry_point=OneTurn)
    yield "bare_name"
    ENV_REGISTRY.pop("bare_name", None)


def test_the_registry_holds_families_too():
    ids = list(ENV_REGISTRY)
    assert {"game:Sudoku-v0-easy", "math:GSM8K", "rg:chain_sum", "rg:letter_counting"} <= set(ids)
    assert len(ids) == len(ENV_REGISTRY) == len(set(ids))
    assert sorted(ids) == gem.ids()


def test_going_through_the_registry_imports_no_environment():
    code = (
        "import sys\nfrom gem.envs.registration import ENV_REGISTRY\n"
        "rg = [i for i in ENV_REGISTRY if i.startswith('rg:')]\nassert len(rg) > 100\n"
        "assert ENV_REGISTRY['rg:chain_sum'].kwargs == {'name': 'chain_sum'}\n"
        "assert not {'reasoning_gym', 'wordfreq', 'textarena', 'sympy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("env_id", ["game:Sudoku-v0-easy", "rg:chain_sum", "code:CodeContest", "eval:AIME24"])
def test_a_spec_says_id_entry_point_and_keywords(env_id):
    spec = ENV_REGISTRY.get(env_id)
    assert spec.id == env_id
    assert ":" in spec.entry_point
    assert isinstance(dict(spec.kwargs), dict)


@pytest.mark.parametrize("name", ["rg:no_such_set", "no:Such-v0", "", 3, None])
def test_what_is_not_registered_is_not_in_the_registry(name):
    assert name not in ENV_REGISTRY
    assert ENV_REGISTRY.get(name) is None
    with pytest.raises(KeyError):
        ENV_REGISTRY[name]


def test_the_registry_is_live(registered):
    assert registered in ENV_REGISTRY
    assert registered in list(ENV_REGISTRY)
    del ENV_REGISTRY[registered]
    assert registered not in ENV_REGISTRY
    ENV_REGISTRY[registered] = EnvSpec(registered, OneTurn, {"greeting": "hey"})
    assert make(registered).reset(seed=0)[0].startswith("hey")


def test_an_id_without_a_family_is_made_and_its_keywords_reach_the_constructor(registered):
    env = gem.make(env_id=registered, greeting="hello", group_size=8)
    assert (env.greeting, env.max_turns, env.env_id) == ("hello", 1, registered)
    assert env.entry_point is OneTurn


@pytest.mark.parametrize("seed", [0, 5, 2**40])
def test_the_seed_reaches_a_constructor_that_takes_one(registered, seed):
    env = gem.make(registered, seed=seed)
    assert (env.drawn_with, env.seed) == (seed, seed)
    assert env.reset()[0] == gem.make(registered).reset(seed=seed)[0]


def test_a_constructor_that_needs_a_seed_gets_it(registered):
    class Needy(OneTurn):
        def __init__(self, seed):
            super().__init__(seed=seed)

    register("needy", Needy)
    try:
        assert gem.make("needy", seed=4).drawn_with == 4
    finally:
        del ENV_REGISTRY["needy"]


def test_five_plain_values_are_enough(registered):
    env = make(registered)
    obs, info = env.reset(seed=1)
    assert info == {"env_instruction": "say yes"}
    obs, reward, terminated, truncated, info = env.step(action="yes")
    assert (obs, reward, terminated, truncated) == (TERMINAL_STATE, 1.0, True, True)


def test_a_function_of_arguments_may_be_an_entry_point():
    from functools import partial

    register("partial_name", partial(OneTurn, greeting="hey"))
    try:
        env = gem.make("partial_name", seed=4)
        assert (env.greeting, env.seed) == ("hey", 4)
    finally:
        del ENV_REGISTRY["partial_name"]


def test_a_reset_may_keep_the_seed_that_it_was_given():
    class Keeps(OneTurn):
        def reset(self, seed=None):
            start = super().reset(seed)
            self.seed = seed
            return start

    env = Keeps()
    first = env.reset(seed=6)
    assert env.seed == 6
    assert env.reset(seed=6)[0] == first[0]
    env.reset()
    assert env.seed not in (None, 6)
    with pytest.raises(ValueError, match="after"):
        env.seed = 7


def test_reset_is_called_unbound_with_the_seed_by_position(registered):
    env = make(registered)
    Env.reset(env, 9)
    assert env.seed == 9


def test_an_environment_that_inherits_another_gyms_first_methods_works():
    class Foreign:
        def __init__(self, size):
            self.size = size

        def render(self):
            return "#" * self.size

        def close(self):
            self.closed = True

    class Both(Env, Foreign):
        def __init__(self, size=3):
            Foreign.__init__(self, size)

        def reset(self, seed=None):
            Env.reset(self, seed)
            return self.render(), {}

        def step(self, action):
            return self.render(), 0, False, False, {}

        def sample_random_action(self):
            return "up"

    env = Both()
    assert env.reset(seed=1)[0] == "###"
    assert env.step(env.sample_random_action())[1] == 0
    env.close()


def test_messages_as_actions_reach_a_step_that_says_so():
    class ToolCalls(Env):
        def reset(self, seed=None):
            super().reset(seed)
            return [{"role": "user", "content": "move"}], {"tools": []}

        def step(self, action: "dict | str"):
            done = isinstance(action, dict)
            return [{"role": "tool", "content": "moved"}], float(done), done, False, {}

    env = ToolCalls()
    assert env.reset(seed=0)[0][0]["role"] == "user"
    assert env.step("text").reward == 0
    assert env.step({"role": "assistant", "tool_calls": []}).reward == 1


def test_any_other_step_takes_text_alone(registered):
    env = make(registered)
    env.reset(seed=0)
    with pytest.raises(BadAction):
        env.step({"role": "assistant"})


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("game:GuessTheNumber-v0", "game:GuessTheNumber-v0-easy"),
        ("game:Sokoban-v0", "game:Sokoban-v0-easy"),
        ("game:Game2048-v0", "game:Game2048-v0-easy"),
    ],
)
def test_an_id_without_its_variant_is_the_easy_one(short, full):
    env = gem.make(short)
    assert env.env_id == full
    assert env.reset(seed=3)[0] == gem.make(full).reset(seed=3)[0]
    assert short not in list(ENV_REGISTRY)


@pytest.mark.parametrize("name", ["game:NoSuchGame-v0", "game:GuessTheNumber", "rg:chain_sum-v0"])
def test_nothing_else_is_guessed(name):
    with pytest.raises(UnknownEnv):
        gem.make(name)


def test_unknown_keywords_are_refused_where_upstream_forgot_them():
    with pytest.raises(TypeError, match="does not take 'num_env'"):
        gem.make("game:GuessTheNumber-v0-easy", num_env=8)


def test_a_service_makes_resets_steps_and_drops_by_name():
    held = {"box-1": gem.make("game:Sokoban-v0-easy")}
    example = gem.make("game:Sokoban-v0-easy")  # never reset: it only says what an action looks like
    obs, info = held["box-1"].reset(seed=42)
    assert obs
    assert info is not None
    for _ in range(10):
        obs, reward, terminated, truncated, info = held["box-1"].step(example.sample_random_action())
        assert None not in (obs, reward, terminated, truncated, info)
        if terminated or truncated:
            break
    del held["box-1"]


@pytest.mark.parametrize(
    "env_id",
    ["game:GuessTheNumber-v0-hard", "game:Sudoku-v0-easy", "rg:chain_sum", "math:Arithmetic-v0-easy"],
)
def test_a_trainer_that_asks_for_max_turns_gets_a_number(env_id):
    if env_id.startswith("rg:"):
        pytest.importorskip("reasoning_gym")
    assert gem.make(env_id).max_turns >= 1


def test_a_system_prompt_may_be_hung_on_an_environment():
    env = gem.make("game:GuessTheNumber-v0-easy")
    env.system_prompt = "Be brief."
    env.reset(seed=0)
    assert env.system_prompt == "Be brief."
