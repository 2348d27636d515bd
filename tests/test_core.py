import copy
import functools
import math
import pickle
import re
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from gem import Env, EnvWrapper, Start, Step, make
from gem.errors import (
    BadAction,
    BadArgument,
    CannotFork,
    ContractBroken,
    EnvClosed,
    EpisodeOver,
    NoSolver,
    ResetNeeded,
    UnknownArgument,
)
from gem.registry import EnvSpec
from gem.specs import parameters_of
from gem.testing import EchoEnv


class Counter(Env):
    """Counts steps, and shares a list with its twins."""

    shared = ("library",)

    def __init__(self, limit=3, library=None):
        self.limit = limit
        self.library = library if library is not None else ["shared"]
        self.notes = []

    def reset(self, seed=None, offset=0):
        super().reset(seed)
        self.notes = [offset]
        return "start", {}

    def step(self, action):
        self.notes.append(self.rng.randrange(10**6))
        return f"{action} {self.notes[-1]}", 0, len(self.notes) > self.limit, False, {}


class Loud(EnvWrapper):
    """Counts its own steps and shouts."""

    def __init__(self, env, mark="!"):
        super().__init__(env)
        self.mark = mark
        self.steps = 0

    def on_step(self, step):
        self.steps += 1
        return step._replace(obs=step.obs.upper() + self.mark)


# -- what reset and step return


def test_plain_tuples_become_start_and_step():
    env = Counter()
    start = env.reset(seed=0)
    step = env.step("a")
    assert isinstance(start, Start)
    assert start == ("start", {})
    assert isinstance(step, Step)
    obs, reward, terminated, truncated, _ = step
    assert (obs, reward, terminated, truncated) == (step.obs, 0, False, False)


@pytest.mark.parametrize("wrap", [lambda env: env, EnvWrapper])
@pytest.mark.parametrize(
    ("start", "step", "told"),
    [
        ("go", None, "reset of <Odd> returned str 'go'; it must return observation, info"),
        (("go",), None, "reset of <Odd> returned 1 values (str); it must return observation, info"),
        (
            ("go", {}),
            ("on", 1.0, True, {}),
            "step of <Odd> returned 4 values (str, float, bool, dict); it must return observation, reward, "
            "terminated, truncated, info",
        ),
        (("go", {}), None, "step of <Odd> returned NoneType None; it must return observation, reward, "),
    ],
)
def test_a_result_of_another_form_is_told(start, step, told, wrap):
    class Odd(Env):
        def reset(self, seed=None):
            super().reset(seed)
            return start

        def step(self, action):
            return step

    env = wrap(Odd())
    with pytest.raises(ContractBroken, match=re.escape(told)):
        env.reset(seed=0) and env.step("x")


@pytest.mark.parametrize(
    ("terminated", "truncated"), [(False, False), (True, False), (False, True), (True, True)]
)
def test_done_is_either_end(terminated, truncated):
    assert Step("", 0.0, terminated, truncated, {}).done is (terminated or truncated)


# -- order of calls


def test_step_needs_a_running_episode():
    env = Counter(limit=1)
    with pytest.raises(ResetNeeded):
        env.step("a")
    env.reset(seed=0)
    env.step("a")
    with pytest.raises(EpisodeOver):
        env.step("a")
    env.reset()
    env.close()
    env.close()
    for call in (lambda: env.step("a"), env.reset):
        with pytest.raises(EnvClosed):
            call()


def test_the_block_closes():
    with Counter() as env:
        env.reset(seed=0)
    with pytest.raises(EnvClosed):
        env.reset()


@pytest.mark.parametrize("action", [None, 1, b"1", ["1"]])
def test_an_action_is_text(action):
    env = Counter()
    env.reset(seed=0)
    with pytest.raises(BadAction, match="takes text"):
        env.step(action)
    assert env.step("1").obs.startswith("1 ")  # the episode goes on


def test_a_subclass_may_change_how_its_parent_ends():
    class Endless(Counter):
        def step(self, action):
            return (*super().step(action)[:2], False, False, {})

    env = Endless(limit=1)
    env.reset(seed=0)
    for _ in range(3):
        assert not env.step("a").done


def test_a_method_that_a_mixin_brings_is_guarded_too():
    class Stepping:
        def step(self, action):
            return action, 0.0, True, False, {}

    class Mixed(Stepping, Counter):
        pass

    env = Mixed()
    with pytest.raises(ResetNeeded):
        env.step("a")
    env.reset(seed=0)
    assert isinstance(env.step("a"), Step)
    with pytest.raises(EpisodeOver):
        env.step("a")


def test_an_episode_whose_reset_failed_cannot_be_stepped():
    class Fails(Counter):
        def reset(self, seed=None):
            super().reset(seed)
            raise RuntimeError("half dealt")

    env = Fails()
    with pytest.raises(RuntimeError, match="half dealt"):
        env.reset(seed=0)
    with pytest.raises(EpisodeOver):
        env.step("a")


def test_a_refused_seed_leaves_a_new_environment_new():
    env = Counter()
    with pytest.raises(BadArgument):
        env.reset(seed=-1)
    with pytest.raises(ResetNeeded):
        env.step("a")


def test_gymnasium_signature_with_keyword_only_seed_works():
    class Gymnastic(Counter):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return str(options), {}

    env = Gymnastic()
    assert env.reset(seed=3, options="x").obs == "x"
    assert env.seed == 3


def test_undeclared_options_are_refused_and_declared_ones_arrive():
    env = Counter()
    env.reset(seed=0, offset=7)
    assert env.notes == [7]
    with pytest.raises(UnknownArgument, match=r"offest.*offset, seed"):
        env.reset(seed=0, offest=7)
    with pytest.raises(UnknownArgument):
        EnvWrapper(env).reset(offest=7)


def test_what_is_not_defined_says_so():
    env = Env()
    env.reset(seed=0)
    for call in (env.sample_random_action, env.solve):
        with pytest.raises(NoSolver):
            call()
    with pytest.raises(NotImplementedError, match="must define step"):
        env.step("a")


# -- chance


def seeds_of(env, n):
    found = []
    for _ in range(n):
        env.reset()
        found.append(env.seed)
    return found


def test_a_run_follows_from_its_first_seed():
    one, other = Counter(), Counter()
    one.reset(seed=5)
    other.seed = 5
    assert seeds_of(other, 4) == [5, *seeds_of(one, 3)]
    assert len(set(seeds_of(one, 100))) == 100


def test_unseeded_runs_differ_and_can_be_replayed():
    one, other = Counter(), Counter()
    one.reset()
    other.reset()
    assert one.seed != other.seed
    said = one.step("a")
    other.reset(seed=one.seed)
    assert other.step("a") == said


def test_numpy_integers_are_seeds():
    numpy = pytest.importorskip("numpy")
    env, other = Counter(), Counter()
    env.reset(seed=numpy.int64(4))
    other.reset(seed=4)
    assert type(env.seed) is int
    assert env.step("a") == other.step("a")


@pytest.mark.parametrize("seed", [-1, 1.0, "1", True, [1]])
def test_other_seeds_are_refused(seed):
    env = Counter()
    with pytest.raises(BadArgument, match="non-negative integer"):
        env.reset(seed=seed)
    with pytest.raises(BadArgument):
        env.seed = seed


def test_an_episode_keeps_its_seed():
    env, other = Counter(), Counter()
    env.reset(seed=1)
    with pytest.raises(BadArgument, match=r"after <Counter> began; use reset\(seed=2\)"):
        env.seed = 2
    with pytest.raises(BadArgument, match="began"):
        EnvWrapper(env).seed = 2
    other.reset(seed=1)
    assert env.seed == 1
    assert env.step("a") == other.step("a")


def test_the_actor_does_not_disturb_the_world():
    one, other = EchoEnv(), EchoEnv()
    assert one.reset(seed=1) == other.reset(seed=1)
    for _ in range(10):
        one.sample_random_action()
    assert one.step("0") == other.step("0")


def test_a_reset_that_does_not_begin_with_that_of_env_is_told_so():
    class Forgets(Counter):
        def reset(self, seed=None):
            return Start(str(self.rng.random()), {})

    for env in (Forgets(), EnvWrapper(Forgets())):
        with pytest.raises(ContractBroken, match=r"^reset\(\) of Forgets draws .* super\(\)\.reset\(seed\)"):
            env.reset(seed=0)


def test_there_is_no_chance_before_reset():
    for stream in ("rng", "actor_rng"):
        with pytest.raises(ResetNeeded):
            getattr(Counter(), stream)


# -- state


def future(env, n=2):
    return [env.step("a") for _ in range(n)]


def test_a_restored_state_has_the_same_future_here_and_elsewhere():
    env, other = Counter(5), Counter(5)
    env.reset(seed=0)
    future(env)
    state = env.get_state()
    said = future(env)
    for target in (env, other):
        target.set_state(state)
        assert future(target) == said
    state["notes"].append("changed by the caller")
    assert "changed by the caller" not in env.notes


def test_twins_share_what_is_shared_and_nothing_else():
    env = Counter(5)
    env.reset(seed=0)
    twin = env.fork()
    assert twin.library is env.library
    assert twin.notes is not env.notes
    assert future(twin) == future(env)
    assert env.spawn(same_state=True).notes == env.notes


def test_a_fork_with_a_seed_has_another_future():
    env = Counter(5)
    env.reset(seed=0)
    said = future(env)
    futures = [future(env.fork(seed=s), 1) for s in range(3)]
    assert len({str(f) for f in [*futures, future(env, 1)]}) == 4
    assert future(env.fork(seed=1), 1) == future(env.fork(seed=1), 1)
    assert said[0] not in futures


def test_what_lives_outside_cannot_be_forked():
    class Live(Counter):
        forkable = False

    env = Live()
    env.reset(seed=0)
    for call in (env.fork, env.get_state, lambda: env.set_state({}), lambda: env.spawn(same_state=True)):
        with pytest.raises(CannotFork):
            call()
    with pytest.raises(CannotFork):
        EnvWrapper(env).fork()


def test_an_attribute_that_cannot_be_copied_is_named():
    class Locked(Counter):
        def reset(self, seed=None):
            self.lock = threading.Lock()
            return super().reset(seed)

    class Shared(Locked):
        shared = ("lock",)

    env = Locked()
    env.reset(seed=0)
    with pytest.raises(CannotFork, match=r"Locked\.lock is a lock, .* Name it in `shared`"):
        env.fork()
    env = Shared()
    env.reset(seed=0)
    assert env.fork().lock is env.lock


class Part:
    """Knows its game."""

    def __init__(self, game):
        self.game = game

    def move(self):
        self.game.room += 1


class Base(Env):
    """Something to override."""

    def go(self):
        self.room += 10


class Rooms(Base):
    """Refers to itself, as text adventures do: by a part, by methods in a table, by an attribute."""

    def reset(self, seed=None):
        super().reset(seed)
        self.room, self.me, self.part = 0, self, Part(self)
        methods = {"go": self.go, "base": super().go, "part": self.part.move}
        self.table = {**methods, "later": functools.partial(self.go, 100)}
        return "room 0", {}

    def go(self, by=1):
        self.room += by

    def step(self, action):
        self.table[action]()
        return f"room {self.me.room}", 0.0, False, False, {}


class Private(Rooms):
    """A table of a method that its name alone does not find."""

    def reset(self, seed=None):
        start = super().reset(seed)
        self.table["go"] = self.__go
        return start

    def __go(self):
        self.room += 3


class Peek(EnvWrapper):
    """Refers to the environment inside, and to itself."""

    def __init__(self, env):
        super().__init__(env)
        self.game, self.count, self.steps = env.unwrapped, self.counted, 0

    def counted(self):
        self.steps += 1

    def on_step(self, step):
        self.count()
        return step._replace(info={"room": self.game.room, "steps": self.steps})


def restored(env, send=lambda state: state):
    other = env.spawn()
    other.reset(seed=1)
    other.set_state(send(env.get_state()))
    return other


ACTIONS = ("go", "base", "part", "later")


@pytest.mark.parametrize("wrap", [lambda env: env, Peek, lambda env: Peek(Loud(Peek(env)))])
@pytest.mark.parametrize(
    ("kind", "duplicate"),
    [
        (Rooms, lambda env: env.fork()),
        (Rooms, restored),
        (Rooms, lambda env: restored(env, lambda state: pickle.loads(pickle.dumps(state)))),
        (Rooms, lambda env: restored(env, copy.deepcopy)),
        (Private, lambda env: env.fork()),
        (Private, restored),
    ],
)
def test_what_refers_to_the_environment_refers_to_its_copy(wrap, kind, duplicate):
    env = wrap(kind())
    env.reset(seed=0)
    env.step("go")
    twin = duplicate(env)
    said = [env.step(action) for action in ACTIONS]
    assert env.unwrapped.room == (117 if kind is Private else 113)
    assert [twin.step(action) for action in ACTIONS] == said
    assert twin.unwrapped.me is twin.unwrapped.part.game is twin.unwrapped
    assert env.unwrapped.me is env.unwrapped


def test_a_state_does_not_hold_the_environment():
    env = Rooms()
    env.reset(seed=0)
    state = env.get_state()
    assert state["me"] is state["part"].game is env.get_state()["me"]
    assert not isinstance(state["me"], Env)


def test_attributes_in_slots_are_state():
    class Slots(Env):
        __slots__ = ("library", "never", "room")
        shared = ("library",)

        def reset(self, seed=None):
            super().reset(seed)
            self.room, self.library = [0], object()
            return "", {}

        def step(self, action):
            self.room[0] += 1
            return str(self.room), 0.0, False, False, {}

    env, other = Slots(), Slots()
    env.reset(seed=0)
    env.step("")
    twin = env.fork()
    assert twin.library is env.library
    other.room = ["old"]
    other.set_state(env.get_state())
    assert env.step("") == twin.step("") == other.step("")
    fresh = Slots()
    other.set_state(fresh.get_state())
    assert not hasattr(other, "room")
    assert not hasattr(EnvWrapper(fresh).fork(), "room")


@pytest.mark.parametrize(
    ("hold", "told"),
    [
        (lambda env: {"act": lambda: env.room}, r"Held\.held holds a function .*<lambda>"),
        (lambda env: (1, ("act", lambda by=env: by.room)), "a function"),
        (lambda env: [functools.partial(lambda: env.part.move)], "a function"),
        (lambda env: functools.wraps(env.go)(lambda: None), "a function"),
        (lambda env: env.part.log.append, "a builtin_function_or_method list.append"),
        (lambda env: Part(weakref.ref(env)), "a (ReferenceType|weakref)"),
        (lambda env: Part(weakref.proxy(env)), "a (ProxyType|weakproxy)"),
        (lambda env: functools.cache(env.go), "a _lru_cache_wrapper"),
        (lambda env: weakref.WeakValueDictionary({"it": env.part}), "a function Weak"),
        (lambda env: Peek(env).counted, "the wrapper Peek"),
    ],
)
def test_what_would_act_on_another_environment_is_refused(hold, told):
    class Held(Rooms):
        def reset(self, seed=None):
            start = super().reset(seed)
            self.part.log = []
            self.held = hold(self)
            return start

    env = Held()
    env.reset(seed=0)
    for call in (env.get_state, env.fork, EnvWrapper(env).fork, EnvWrapper(env).get_state):
        with pytest.raises(CannotFork, match=f"{told}.* by which a copy would act on another environment"):
            call()


def test_functions_that_keep_nothing_of_the_environment_are_copied():
    class Pure(Rooms):
        def reset(self, seed=None):
            start, factor = super().reset(seed), [2]
            self.held = [lambda x: x * factor[0], len, math.sqrt, weakref.ref(Part), functools.cache(abs)]
            return start

    env = Pure()
    env.reset(seed=0)
    assert env.fork().held == env.held


def test_a_reset_without_a_seed_breaks_the_contract():
    class Seedless(Counter):
        def reset(self):
            return super().reset()

    with pytest.raises(ContractBroken, match=r"Seedless\.reset takes no seed; define reset"):
        Seedless().reset()


def test_what_a_class_takes_is_what_its_own_init_or_an_inherited_one_declares():
    class Own(Env):
        def __init__(self, size, *, depth=1):
            pass

    class Inheriting(Own):
        pass

    class Without(Env):
        pass

    assert [*parameters_of(Own)] == [*parameters_of(Inheriting)] == ["size", "depth"]
    assert parameters_of(Without) == {}
    assert [*parameters_of(lambda name, size=1: Own(size))] == ["name", "size"]


def test_spawn_makes_another_of_the_same_making():
    env = make("game:GuessTheNumber-v0-easy")
    other = env.spawn(max_turns=9)
    assert other.max_turns == 9
    assert other.spec.kwargs == {**env.spec.kwargs, "max_turns": 9}  # an episode's record makes it again
    assert env.spawn().spec == env.spec
    with pytest.raises(ResetNeeded):
        env.spawn().step("1")
    with pytest.raises(UnknownArgument, match="max_turns"):
        env.spawn(same_state=True, max_turns=9)


def test_shared_names_are_a_tuple():
    class Typo(Counter):
        shared = "library"  # without the comma

    env = Typo()
    env.reset(seed=0)
    with pytest.raises(BadArgument, match="tuple of attribute names"):
        env.fork()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize("wrap", [lambda env: env, Loud, lambda env: Loud(env=env, mark="?")])
def test_copies_and_pickles_go_on(duplicate, wrap):
    env = wrap(EchoEnv(turns=4))
    env.reset(seed=0)
    env.step("0")
    twin = duplicate(env)
    assert [twin.step("1") for _ in range(3)] == [env.step("1") for _ in range(3)]
    assert twin.spawn().unwrapped.turns == 4


def test_forks_can_be_played_in_threads():
    env = Counter(5)
    env.reset(seed=0)
    said = future(env.fork())
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(future, [env.fork() for _ in range(8)])) == [said] * 8


# -- wrappers


def test_a_wrapper_reads_through_live():
    env = Counter()
    wrapped = EnvWrapper(Loud(env))
    env.limit = 17
    assert wrapped.limit == 17
    assert wrapped.mark == "!"
    assert wrapped.unwrapped is env
    wrapped.seed = 9
    assert wrapped.reset().info == {}
    assert (wrapped.seed, env.seed) == (9, 9)
    assert wrapped.rng is env.rng
    assert wrapped.actor_rng is env.actor_rng
    for hidden in ("_phase_of_moon", "no_such_name"):
        with pytest.raises(AttributeError):
            getattr(wrapped, hidden)


def test_a_wrapper_has_its_envs_spec():
    wrapped = Loud(make("game:GuessTheNumber-v0-easy"))
    assert wrapped.env_id == "game:GuessTheNumber-v0-easy"
    assert wrapped.spec is wrapped.env.spec
    assert str(wrapped) == "<Loud(game:GuessTheNumber-v0-easy)>"
    wrapped.spec = EnvSpec("my:Env-v0", Counter)
    assert wrapped.env.spec.id == "my:Env-v0"


def test_a_wrappers_state_nests_its_envs():
    env = Loud(Counter(9))
    env.reset(seed=0)
    env.step("a")
    state = env.get_state()
    said = future(env)
    env.set_state(state)
    assert env.steps == 1
    assert future(env) == said
    other = Loud(Counter(9))
    other.set_state(state)
    assert (other.steps, future(other)) == (1, said)


@pytest.mark.parametrize("make_loud", [lambda env: Loud(env, "?"), lambda env: Loud(mark="?", env=env)])
def test_a_forked_wrapper_is_a_twin_of_its_own(make_loud):
    env = make_loud(Counter(9))
    env.reset(seed=0)
    env.step("a")
    twin = env.fork()
    assert future(twin) == future(env)
    assert (twin.steps, twin.mark, env.steps) == (3, "?", 3)
    twin.close()
    env.step("a")
    redrawn = env.fork(seed=1)
    assert redrawn.steps == env.steps
    assert redrawn.step("a") != env.fork().step("a")
    grandchild = twin.spawn(limit=1)
    assert grandchild.limit == 1
    assert (grandchild.mark, grandchild.steps) == ("?", 0)


def test_a_forked_wrapper_does_not_hold_the_environment_it_came_from():
    env = Loud(Counter())
    env.reset(seed=0)
    twin = env.fork()
    env.env.burden = "x" * 100_000
    assert len(pickle.dumps(twin)) < 10_000
