from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gem
from gem.content import Image, Text, join
from gem.core import Env, EnvWrapper, Start, Step
from gem.errors import BadArgument, EpisodeOver, ResetNeeded, UnknownArgument, UnknownEnv
from gem.history import KINDS, HistoryPolicy, messages
from gem.hosts.base import KINDS as HOSTS
from gem.record import SEAT, Ask, Limits, Reply, StopReason, Turn
from gem.registry import Maker
from gem.rollout import Job, rollout
from gem.testing import EchoEnv, check_env
from gem.vector.vector_env import VectorEnv
from gem.wrappers import (
    WRAPPER_FACTORY,
    EpisodeTrackingWrapper,
    ObservationWrapper,
    TimeLimit,
    TransformAction,
    TransformReward,
    get_wrapper_fns,
)
from gem.wrappers.wrapper_factory import TOKENIZER_REQUIRED

GUESS = "game:GuessTheNumber-v0-hard"


class Brackets:
    """A tokenizer whose template puts the role in brackets."""

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        assert not tokenize
        said = "".join(f"[{each['role']}]{each['content']}" for each in conversation)
        return said + "[assistant]" * add_generation_prompt


class Told(Env):
    """Tells its turn between a prefix and a suffix; every third observation has a picture."""

    def reset(self, seed: int | None = None) -> Start:
        super().reset(seed)
        self.turn = 0
        return Start(self._say(), {"suffix": "first?"})

    def step(self, action: str) -> Step:
        self.turn += 1
        return Step(self._say(), 1.0, self.turn >= 9, False, {"prefix": f"<{self.turn}>", "suffix": "next?"})

    def _say(self) -> Any:
        text = f"turn {self.turn} of {self.rng.randrange(100)}"
        return (Text(text), Image(b"x", alt="a cat")) if self.turn % 3 == 2 else text


def upper(text: str) -> str:
    return text.upper()


def halved(reward: float) -> float:
    return reward / 2


def chain(env: Env) -> Env:
    """Everything at once."""
    env = TransformReward(TransformAction(TimeLimit(env, 6), upper), halved)
    return EpisodeTrackingWrapper(ObservationWrapper(env, include_chat_template=True, tokenizer=Brackets()))


WRAPPERS = {
    "time_limit": partial(TimeLimit, max_steps=4),
    "action": partial(TransformAction, fn=upper),
    "reward": partial(TransformReward, fn=halved),
    "tracking": EpisodeTrackingWrapper,
    "concat": ObservationWrapper,
    "window": partial(ObservationWrapper, include_action=True, max_history_length=3),
    "chat": partial(ObservationWrapper, include_chat_template=True, tokenizer=Brackets()),
    "on_reset": partial(ObservationWrapper, apply_chat_template_on_reset=True, tokenizer=Brackets()),
    "chain": chain,
}
EACH = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)


def played(env: Env, seed: int | None, steps: int = 4, word: str = "\\boxed{3}") -> list[Any]:
    said: list[Any] = [] if seed is None else [env.reset(seed=seed)]
    for turn in range(steps):
        said.append(env.step(f"{word} {turn}"))
        if said[-1].done:
            break
    return said


# -- every wrapper keeps the contract


@pytest.mark.parametrize(
    "wrap",
    [
        partial(TimeLimit, max_steps=50),
        partial(TransformAction, fn=str.strip),
        partial(TransformReward, fn=float),
        *(WRAPPERS[name] for name in ("concat", "window", "chat", "on_reset")),
    ],
)
def test_the_judge_finds_nothing_where_task_and_reward_are_left_alone(wrap: Any) -> None:
    report = check_env(wrap(gem.make(GUESS)))
    assert report.ok, str(report)


@EACH
def test_forks_copies_and_twins_go_on_alike(wrap: Any) -> None:
    env = wrap(Told())
    played(env, 5, steps=2)
    twins = [env.fork(), copy.deepcopy(env), pickle.loads(pickle.dumps(env)), env.spawn(same_state=True)]
    restored = wrap(Told())
    restored.set_state(env.get_state())
    expected = played(env, None, steps=3)
    assert all(played(twin, None, steps=3) == expected for twin in [*twins, restored])
    assert type(env.spawn()) is type(env)
    assert played(env.spawn(), 5) == played(wrap(Told()), 5)


@pytest.mark.system
def test_transcripts_are_the_same_on_every_host() -> None:
    makers = [Maker(GUESS, {}, (wrap,)) for wrap in WRAPPERS.values()]
    said = []
    for backend in HOSTS:
        with VectorEnv(makers, backend, seed=2) as vec:
            rows = [vec.reset()[0]]
            for guess in (25, 12, 40, 1, 3, 7, 9, 50, 30):
                obs, reward, _, _, infos = vec.step([f"\\boxed{{{guess}}}"] * len(makers))
                rows += [[*obs, *map(str, reward), *map(str, infos)]]
            said.append(rows)
    assert said[0] == said[1] == said[2]


def test_attributes_are_read_through_live() -> None:
    env = chain(Told())
    env.reset(seed=1)
    env.step("go")
    assert (env.turn, env.unwrapped.turn) == (1, 1)
    assert env.assembles_history is True


# -- time limit


@pytest.mark.parametrize("wrong", [0, 2.5, "3", True, None])
def test_a_limit_is_a_whole_number(wrong):
    with pytest.raises(BadArgument, match=r"max_steps is .*accepted: (1 or more|a whole number)"):
        TimeLimit(EchoEnv(), wrong)


def test_a_time_limit_truncates_and_says_why() -> None:
    env = TimeLimit(Told(), 2)
    with pytest.raises(ResetNeeded):
        env.step("a")
    for seed in (1, 2):
        env.reset(seed=seed)
        assert not env.step("a").done
        step = env.step("b")
        assert (step.terminated, step.truncated, step.info["stop"]) == (False, True, "turn_limit")
        with pytest.raises(EpisodeOver):
            env.step("c")


def test_an_end_of_the_task_at_the_limit_is_a_termination() -> None:
    step = played(TimeLimit(Told(), 9), 1, steps=9)[-1]
    assert (step.terminated, step.truncated) == (True, False)
    assert "stop" not in step.info
    with pytest.raises(BadArgument, match="max_steps is 0"):
        TimeLimit(Told(), 0)


# -- transforms


def test_transforms_apply_their_function() -> None:
    assert TransformReward(Told(), halved).reset(seed=1) == Told().reset(seed=1)
    assert [step.reward for step in played(TransformReward(Told(), halved), 1)[1:]] == [0.5] * 4
    env = TransformAction(gem.make(GUESS), lambda text: f"\\boxed{{{text}}}")
    env.reset(seed=1)
    assert env.step(str(env.secret)).info["success"] is True


# -- statistics


def test_statistics_of_this_episode_and_the_one_before() -> None:
    env = EpisodeTrackingWrapper(Told())
    start = env.reset(seed=1)
    nothing = {"prev_ep_step_counter": None, "prev_ep_cumulative_rewards": None}
    assert start.info == {"suffix": "first?", "step_counter": 0, "cumulative_rewards": 0.0, **nothing}
    steps = [env.step("a") for _ in range(9)]
    assert [step.info["step_counter"] for step in steps] == list(range(1, 10))
    assert [step.info["cumulative_rewards"] for step in steps] == [float(n) for n in range(1, 10)]
    assert steps[-1].info["episode"] == {"return": 9.0, "length": 9}
    assert "episode" not in steps[-2].info
    info = env.reset().info
    assert (info["prev_ep_step_counter"], info["prev_ep_cumulative_rewards"]) == (9, 9.0)
    env.step("a")
    info = env.reset().info  # an episode left in the middle counts as it was
    assert (info["step_counter"], info["prev_ep_step_counter"]) == (0, 1)


def test_auto_reset_carries_the_statistics_of_the_end() -> None:
    with VectorEnv([lambda: EpisodeTrackingWrapper(EchoEnv(turns=2))], seed=0) as vec:
        vec.reset()
        vec.step(["1"])
        info = vec.step(["1"])[4][0]
        assert info["final_info"]["episode"]["length"] == info["prev_ep_step_counter"] == 2
        assert info["step_counter"] == 0


# -- history


policies = st.builds(
    HistoryPolicy,
    kind=st.sampled_from(KINDS),
    window=st.none() | st.integers(1, 5),
    keep_first=st.booleans(),
    system=st.none() | st.just("Be brief."),
)


@given(policies, st.lists(st.text(max_size=5), max_size=8), st.integers(0, 100))
def test_the_observation_is_what_history_shows(policy: HistoryPolicy, actions: list[str], seed: int) -> None:
    raw, env = Told(), ObservationWrapper(Told(), policy=policy, tokenizer=Brackets())
    first = raw.reset(seed=seed)
    turns = [Turn(SEAT, first.obs, info=first.info)]
    obs, info = env.reset(seed=seed)
    for action in [*actions, None]:
        shown = messages(turns, policy)
        if policy.kind == "chat":
            said = [{"role": each.role, "content": each.text} for each in shown]
            expected: Any = Brackets().apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        else:
            expected = join(message.content for message in shown)
        assert obs == expected
        assert not info.keys() & {"prefix", "suffix"}  # they stand in the observation
        if action is not None:
            turns[-1].action = action
            step = raw.step(action)
            turns.append(Turn(SEAT, step.obs, info=step.info))
            obs, *_, info = env.step(action)


def test_the_flags_mean_what_they_say() -> None:
    def second(**kwargs: Any) -> str:
        env = ObservationWrapper(EchoEnv(turns=9), **kwargs)
        env.reset(seed=3)
        env.step("A")
        return str(env.step("B").obs)

    raw = EchoEnv(turns=9)
    one, two, three = raw.reset(seed=3).obs, raw.step("A").obs, raw.step("B").obs
    chat: dict[str, Any] = {"tokenizer": Brackets()}
    assert second() == f"{one}\n{two}\n{three}"
    assert second(max_history_length=2) == f"{two}\n{three}"
    assert second(include_action=True) == f"{one}\nA\n{two}\nB\n{three}"
    assert second(include_action=True, max_history_length=2) == f"{two}\nB\n{three}"
    assert second(include_chat_template=True, **chat) == (
        f"[user]{one}[assistant]A[user]{two}[assistant]B[user]{three}[assistant]"
    )
    assert second(include_action=True, apply_chat_template_on_reset=True, **chat) == (
        f"[user]{one}[assistant]\nA\n{two}\nB\n{three}"
    )


@pytest.mark.parametrize("name", sorted({*WRAPPER_FACTORY} - {*TOKENIZER_REQUIRED}))
def test_a_game_of_several_seats_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith("search_tool"):
        pytest.importorskip("tantivy")
        monkeypatch.setenv("SEARCH_URL", "world")
    with pytest.raises(BadArgument, match=r"has several seats, and \w+ wraps one agent's environment"):
        WRAPPER_FACTORY[name](gem.make("multi:KuhnPoker-v0"))
    assert not WRAPPER_FACTORY[name](gem.make("multi:KuhnPoker-v0-vs-random")).several_seats


def test_contradictions_are_refused() -> None:
    with pytest.raises(BadArgument, match="needs tokenizer="):
        ObservationWrapper(EchoEnv(), include_chat_template=True)
    with pytest.raises(BadArgument, match="needs tokenizer="):
        ObservationWrapper(EchoEnv(), apply_chat_template_on_reset=True)
    with pytest.raises(BadArgument, match="drop apply_chat_template_on_reset"):
        ObservationWrapper(
            EchoEnv(),
            include_chat_template=True,
            apply_chat_template_on_reset=True,
            tokenizer=Brackets(),
        )
    with pytest.raises(UnknownArgument, match="not both"):
        ObservationWrapper(EchoEnv(), include_action=True, policy=HistoryPolicy())
    with pytest.raises(BadArgument, match="history window is 0"):
        ObservationWrapper(EchoEnv(), max_history_length=0)


class Noting:
    """An agent that keeps every prompt it is shown."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, asks: list[Ask]) -> list[Reply]:
        self.prompts += [ask.messages[-1].text for ask in asks]
        return [Reply("\\boxed{50}") for _ in asks]

    async def ask(self, ask: Ask) -> Reply:
        return self([ask])[0]

    def forget(self, episode: str) -> None:
        pass


def test_play_over_a_wrapped_environment_shows_the_same_prompts() -> None:
    prompts = []
    for wrappers, history in (((), HistoryPolicy("concat_with_action")), (("concat_with_action",), None)):
        agent = Noting()
        fns = tuple(WRAPPER_FACTORY[name] for name in wrappers)
        (episode,) = rollout([Job(Maker(GUESS, {}, fns), 1)], agent, history=history, limits=Limits(turns=5))
        assert episode.stop is StopReason.TURN_LIMIT
        prompts.append(agent.prompts)
    assert prompts[0] == prompts[1]
    assert prompts[0][-1].count("\\boxed{50}") == 4


# -- the factory


@pytest.mark.parametrize("name", WRAPPER_FACTORY)
def test_a_name_makes_a_fresh_wrapper_each_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith("search_tool"):
        pytest.importorskip("tantivy")
        monkeypatch.setenv("SEARCH_URL", "world")
    (fn,) = get_wrapper_fns(name, tokenizer=Brackets())
    one, two = fn(EchoEnv()), fn(EchoEnv())
    assert isinstance(one, EnvWrapper)
    assert one is not two
    pickle.dumps(fn)
    assert one.reset(seed=1) == two.reset(seed=1)
    if name in TOKENIZER_REQUIRED:
        with pytest.raises(BadArgument, match=f"'{name}' needs tokenizer="):
            get_wrapper_fns(name)


def test_lists_of_names_wrap_from_the_inside_out() -> None:
    assert get_wrapper_fns("") == []
    env: Env = EchoEnv()
    for fn in get_wrapper_fns("concat, episode_tracking"):
        env = fn(env)
    assert str(env) == "<EpisodeTrackingWrapper(<ObservationWrapper(<EchoEnv>)>)>"
    with pytest.raises(UnknownEnv, match=r"no wrapper 'concta'\. Did you mean 'concat'"):
        get_wrapper_fns("concta")


@pytest.mark.parametrize("secret", [5, 9])
def test_an_outcome_of_0_or_1_becomes_one_of_minus_1_or_1(secret):
    how = {"min_number": 1, "max_number": secret, "max_turns": 3, "reward": "sparse"}
    for guess in range(1, secret + 1):
        rewards = []
        for wrappers in ((), ("signed_reward",)):
            env = Maker("game:GuessTheNumber-v0-easy", how, wrappers)()
            env.reset(seed=0)
            rewards.append([])
            done = False
            while not done:
                step = env.step(f"\\boxed{{{guess}}}")
                rewards[-1].append(step.reward)
                done = step.done
        plain, signed = rewards
        assert signed[:-1] == plain[:-1]
        assert signed[-1] == (1.0 if plain[-1] == 1.0 else -1.0)
