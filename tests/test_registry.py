import pickle
import sys
import warnings
from functools import partial
from importlib import metadata
from types import SimpleNamespace

import pytest

import gem
from gem import plugins, registry
from gem.agents.scripted import ScriptedAgent
from gem.core import Env, EnvWrapper, Start, Step
from gem.errors import BadArgument, DuplicateEnv, MissingExtra, UnknownArgument, UnknownEnv
from gem.evals import evaluate
from gem.registry import EnvSpec, Family, Maker
from gem.testing import EchoEnv

GUESS = "game:GuessTheNumber-v0-easy"

HERE = "gem.testing.doubles:EchoEnv"


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "ENV_REGISTRY", registry.ENV_REGISTRY.copy())
    monkeypatch.setattr(registry, "FAMILIES", dict(registry.FAMILIES))


# -- specs


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": ""},
        {"id": "my:Env with spaces"},
        {"id": "my:Env", "solver": "perfect"},
        {"id": "my:Env", "solver": "measured"},
        {"id": "my:Env", "solver": "exact", "solver_rate": 0.5},
    ],
)
def test_a_spec_that_means_nothing_is_refused(wrong):
    with pytest.raises(BadArgument):
        EnvSpec(entry_point=EchoEnv, **wrong)


def test_a_spec_knows_its_family_and_can_be_sent():
    spec = gem.spec("game:GuessTheNumber-v0-easy")
    assert spec.family == "game"
    assert pickle.loads(pickle.dumps(spec)) == spec


# -- registering


def test_a_class_is_registered_with_its_keywords_and_made():
    gem.register("my:Echo-v0", EchoEnv, turns=5)
    gem.register("my:Echo-v1", HERE)
    env = gem.make("my:Echo-v0")
    assert isinstance(env, EchoEnv)
    assert (env.turns, env.env_id) == (5, "my:Echo-v0")
    assert gem.make("my:Echo-v0", turns=2).turns == 2
    assert gem.make("my:Echo-v1").turns == 3
    assert gem.ids("my") == ["my:Echo-v0", "my:Echo-v1"]


def test_registering_twice_is_harmless_and_something_else_is_refused():
    gem.register("my:Echo-v0", HERE)
    gem.register("my:Echo-v0", HERE)
    with pytest.raises(DuplicateEnv, match=f"as {HERE}; choose another id"):
        gem.register("my:Echo-v0", HERE, turns=5)
    with pytest.raises(BadArgument, match="needs an entry point"):
        gem.register("my:Echo-v2")


def test_a_spec_is_registered_with_its_claims():
    gem.register(EnvSpec("my:Echo-v0", HERE, {"turns": 2}, max_turns=2, solver="exact"))
    assert gem.make("my:Echo-v0").spec.solver == "exact"


# -- finding


@pytest.mark.parametrize(
    ("env_id", "said"),
    [
        (
            "game:GessTheNumber-v0-easy",
            "Did you mean 'game:GuessTheNumber-v0-easy'.*`gem-gym list game` shows all",
        ),
        ("guess", "`gem-gym list` shows all"),
        ("nim.py:Nim", "'nim.py:Nim' is registered. `gem-gym list` shows all; gem.make.."),
        ("nim.py@0123456789ab:Nim", "is in a file that was not named here before"),
        ("", "no environment ''"),
        (":", "no environment ':'"),
        ("game:", "gem-gym list game"),
        ("rg:", "gem-gym list rg"),
        ("rg:chain_sum:x", "no environment"),
        ("\ud800", "no environment"),
        ("game:\n\x00", "no environment"),
        ("x" * 100_000, "no environment"),
        ("../../etc/passwd:x", "no environment"),
    ],
)
def test_an_unknown_id_is_refused_with_the_nearest_and_the_way_to_all(env_id, said):
    with pytest.raises(UnknownEnv, match=said):
        gem.spec(env_id)


@pytest.mark.parametrize("env_id", [None, 7, b"game:X", ["game:X"]])
def test_an_id_is_text(env_id):
    with pytest.raises(BadArgument, match="env id is"):
        gem.make(env_id)


def test_ids_are_sorted_and_of_one_family_when_asked():
    assert gem.ids() == sorted(set(gem.ids()))
    assert gem.ids("game") == [i for i in gem.ids() if i.startswith("game:")]
    assert gem.ids("no-such-family") == []
    assert [spec.id for spec in registry.specs("game")] == gem.ids("game")


def test_print_envs_prints_a_block_per_family(capsys):
    gem.register("my:Echo-v0", HERE)
    gem.print_envs("my")
    assert capsys.readouterr().out == "my:\n  my:Echo-v0\n"


# -- making


def test_unknown_keywords_are_refused_with_those_taken():
    with pytest.raises(
        UnknownArgument, match=r"'max_turn'\. Did you mean 'max_turns'\? It takes: min_number"
    ):
        gem.make("game:GuessTheNumber-v0-easy", max_turn=3)


def test_a_class_without_a_constructor_takes_no_keywords():
    class Plain(Env):
        def step(self, action):
            return Step("", 0.0, True, False, {})

    gem.register("my:Plain-v0", Plain)
    assert isinstance(gem.make("my:Plain-v0"), Plain)
    with pytest.raises(UnknownArgument, match="It takes: no keywords"):
        gem.make("my:Plain-v0", sise=3)


def test_a_function_may_make_an_environment():
    gem.register("my:Wrapped-v0", lambda turns=2: EnvWrapper(EchoEnv(turns)))
    env = gem.make("my:Wrapped-v0", turns=4)
    assert (env.turns, env.env_id) == (4, "my:Wrapped-v0")
    with pytest.raises(UnknownArgument):
        gem.make("my:Wrapped-v0", sise=3)


def test_the_spec_of_what_was_made_makes_it_again():
    env = gem.make("game:GuessTheNumber-v0-easy", max_turns=9)
    again = gem.make(env.spec)
    assert again.max_turns == 9
    assert gem.make("game:GuessTheNumber-v0-easy").max_turns == 4  # the registered one is as it was


def test_seed_belongs_to_the_first_reset():
    env, other = gem.make("game:GuessTheNumber-v0-easy", seed=5), gem.make("game:GuessTheNumber-v0-easy")
    env.reset()
    other.reset(seed=5)
    assert (env.seed, env.secret) == (5, other.secret)
    with pytest.raises(BadArgument):
        gem.make("game:GuessTheNumber-v0-easy", seed=-1)


@pytest.mark.parametrize(
    ("entry_point", "extra", "error", "said"),
    [
        ("gem.testing.doubles", None, BadArgument, "accepted: 'module:name'"),
        ("gem.testing.doubles:EkoEnv", None, BadArgument, "Did you mean 'EchoEnv'"),
        ("gem.no_such_room:X", None, BadArgument, "no module 'gem.no_such_room'"),
        ("gem.no_such_room:X", "rg", BadArgument, "no module 'gem.no_such_room'"),
        ("no_such_package.envs:X", None, BadArgument, "no module 'no_such_package'"),
        ("gemstones_missing:X", "rg", MissingExtra, r"pip install .*\[rg\]"),
    ],
)
def test_an_entry_point_that_leads_nowhere_says_where(entry_point, extra, error, said):
    with pytest.raises(error, match=said):
        gem.make(EnvSpec("my:Env-v0", entry_point, extra=extra))


def test_a_module_that_lacks_something_else_says_what(tmp_path, monkeypatch):
    (tmp_path / "wants_more.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        gem.make(EnvSpec("my:Env-v0", "wants_more:X"))


def test_a_maker_is_a_picklable_recipe():
    maker = pickle.loads(pickle.dumps(Maker("game:GuessTheNumber-v0-easy", {"max_turns": 9}, (EnvWrapper,))))
    env = maker()
    assert isinstance(env, EnvWrapper)
    assert env.max_turns == 9


# -- families


class Named(EchoEnv):
    def __init__(self, name, turns=3):
        super().__init__(turns)
        self.name = name


def newer_names():
    return ["old", "new"]


def family(**kwargs):
    return Family("fam", "family_of_tests:Named", ("old", "other"), **kwargs)


@pytest.fixture
def importable(monkeypatch):
    monkeypatch.setitem(sys.modules, "family_of_tests", SimpleNamespace(Named=Named, newer_names=newer_names))


def test_a_family_makes_any_of_its_names(importable):
    registry.register_family(
        family(
            more="family_of_tests:newer_names",
            claims={"solver": "exact"},
            exceptions={"other": {"solver": "none"}},
        )
    )
    env = gem.make("fam:old", turns=2)
    assert (env.name, env.turns, env.env_id) == ("old", 2, "fam:old")
    assert gem.make("fam:new").name == "new"  # asked of the package
    assert gem.ids("fam") == ["fam:old", "fam:other"]
    assert (gem.spec("fam:old").solver, gem.spec("fam:other").solver) == ("exact", "none")
    with pytest.raises(UnknownEnv, match="Did you mean 'fam:other'"):
        gem.spec("fam:othr")


def test_a_prefix_belongs_to_one_family(importable):
    registry.register_family(family())
    registry.register_family(family())
    with pytest.raises(DuplicateEnv, match="family 'fam'"):
        registry.register_family(family(extra="rg"))


def test_listing_and_mistyping_work_without_the_package():
    registry.register_family(Family("far", "far_away:Env", ("one", "two"), more="far_away:names", extra="rg"))
    assert gem.ids("far") == ["far:one", "far:two"]
    with pytest.raises(UnknownEnv, match="Did you mean 'far:one'"):
        gem.make("far:onn")
    with pytest.raises(MissingExtra, match=r"^far:one needs the far_away package"):
        gem.make("far:one")


# -- plug-ins


def plugged(monkeypatch, **loaders):
    class Point:
        def __init__(self, name, load):
            self.name, self.value, self.load = name, f"{name}:register", load

    points = [Point(name, load) for name, load in loaders.items()]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points if group == "gem.envs" else [])
    monkeypatch.setattr(registry, "_plugins_loaded", False)


def test_a_plugin_registers_when_an_id_is_not_known(monkeypatch):
    calls = []

    def register():
        calls.append("once")
        gem.register("plug:Echo-v0", HERE)

    plugged(monkeypatch, good=lambda: register)
    assert gem.spec("game:GuessTheNumber-v0-easy")
    assert calls == []  # known ids need no plug-in
    assert gem.make("plug:Echo-v0").turns == 3
    assert "plug:Echo-v0" in gem.ids()
    assert calls == ["once"]


def test_a_plugin_may_be_a_module_that_registers_when_imported(monkeypatch):
    plugged(monkeypatch, module=lambda: gem.register("plug:Echo-v0", HERE))
    assert "plug:Echo-v0" in gem.ids()


def test_a_plugin_that_fails_is_reported_and_the_others_load(monkeypatch):
    def fails():
        raise RuntimeError("wrong version")

    plugged(monkeypatch, bad=fails, good=lambda: lambda: gem.register("plug:Echo-v0", HERE))
    with pytest.warns(UserWarning, match="plug-in 'bad'.*wrong version"):
        found = gem.ids()
    assert "plug:Echo-v0" in found
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gem.ids()  # said once


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("x = exits_at_once:f", "SystemExit: 3"),
        ("x = exits_at_once.absent:f", "cannot be loaded"),
        ("x = :::", "cannot be loaded"),
        ("x = json:absent", "no attribute"),
        ("x = odd_plugin:NUMBER", "is int; accepted: a class or a function"),
        ("x = odd_plugin:Odd.now", "whose text cannot be read"),
    ],
)
def test_no_plugin_ends_a_command(monkeypatch, tmp_path, lines, words):
    (tmp_path / "exits_at_once.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "odd_plugin.py").write_text(
        "NUMBER = 3\nclass Error(Exception):\n    def __str__(self):\n        raise ValueError\n"
        "class Meta(type):\n    @property\n    def now(cls):\n        raise Error\n"
        "class Odd(metaclass=Meta):\n    pass\n"
    )
    info = tmp_path / "odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[gem.envs]\n{lines}\n[gem.hosts]\n{lines}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_plugins_loaded", False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert gem.ids()
    with pytest.raises(BadArgument, match=words):
        plugins.find("gem.hosts", "x")
    assert len(told) == ("NUMBER" not in lines)
    assert all(str(each.message).count("plug-in") == 1 for each in told)


def test_metadata_that_cannot_be_read_is_reported(monkeypatch, tmp_path):
    info = tmp_path / "odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (info / "entry_points.txt").write_bytes(b"[gem.hosts]\nx = \xff\xfe")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(UserWarning, match="gem.hosts.*cannot be read"):
        assert plugins.names("gem.hosts") == []


# -- vectors


def test_make_vec_takes_one_id_or_many():
    with gem.make_vec("game:GuessTheNumber-v0-easy", num_envs=2, max_turns=9) as vec:
        assert vec.num_envs == 2
    with gem.make_vec(["game:GuessTheNumber-v0-easy"] * 2, vec_kwargs=[{"max_turns": 3}, {}]) as vec:
        assert vec.num_envs == 2


def test_make_vec_called_as_gymnasium_s_names_its_own_argument():
    with pytest.raises(BadArgument, match=r"got wrappers=4; .* The number of environments is num_envs"):
        gem.make_vec("game:GuessTheNumber-v0-easy", 4)


@pytest.mark.parametrize("kwargs", [{"num_envs": 3}, {"vec_kwargs": [{}]}], ids=["num_envs", "vec_kwargs"])
def test_make_vec_refuses_counts_that_do_not_agree(kwargs):
    with pytest.raises(BadArgument, match="make_vec got 2 ids"):
        gem.make_vec(["game:GuessTheNumber-v0-easy"] * 2, **kwargs)


def make_echo():
    return EchoEnv()


@pytest.mark.parametrize(
    "env",
    [
        EchoEnv,
        make_echo,
        lambda: EchoEnv(),
        partial(EchoEnv),
        EnvSpec("doors:Echo", EchoEnv),
        Maker(EchoEnv),
        Maker(Maker(EchoEnv)),
    ],
)
def test_what_names_an_environment_does_so_at_every_door(env):
    assert isinstance(gem.make(env).unwrapped, EchoEnv)
    assert evaluate(ScriptedAgent(["x"] * 9), env, episodes=1).env == registry.spec_named(env).id
    with gem.make_vec(env, num_envs=2) as two, gem.make_vec([env, EchoEnv]) as both:
        assert (two.num_envs, both.num_envs) == (2, 2)
    name = registry.name_env(env)
    assert isinstance(gem.make(name).unwrapped, EchoEnv)
    assert registry.name_env(env) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (HERE, "EchoEnv is a class of environments; accepted: a subclass of gem.EnvWrapper"),
        ("fractions:Fraction", "is a class of other objects"),
        ("json:dumps", "is a function that is marked neither as a tool nor as a wrapper"),
        ("math:pi", "is 3.14.*; accepted: a wrapper or a tool"),
    ],
)
def test_what_is_no_wrapper_is_refused_before_it_is_called(name, why):
    with pytest.raises(BadArgument, match=why):
        Maker(GUESS, {}, (name,))


class Titled(EchoEnv):
    def __init__(self, title):
        super().__init__()
        self.title, self.all_of_them = f"{title}", sys.modules


class Coached(EnvWrapper):
    def __init__(self, env):
        self.coach = EchoEnv()
        self.coach.me = self.coach
        super().__init__(env)


def around(hold):
    """Return a wrapper whose environment has what `hold` makes of the one that it is given."""

    def wrap(env):
        made = EchoEnv()
        made.held = hold(env)
        return made

    return wrap


@pytest.mark.parametrize(
    "wrapper",
    [lambda env: EchoEnv(), lambda env: None, lambda env: env.seed, Titled, around(lambda env: EchoEnv)],
)
def test_a_wrapper_that_drops_its_environment_is_refused(wrapper):
    with pytest.raises(BadArgument, match="does not hold the environment that it was given"):
        gem.make_vec(GUESS, num_envs=1, wrappers=[wrapper])


def test_a_wrapper_may_hold_its_environment_in_any_attribute():
    class Around(EchoEnv):
        def __init__(self, game):
            super().__init__()
            self.game = game

    assert Maker(GUESS, {}, (lambda env: Around(EnvWrapper(env)),))().game.unwrapped.spec.id == GUESS
    assert Maker(GUESS, {}, (lambda env: env,))().spec.id == GUESS


@pytest.mark.parametrize(
    "wrapper",
    [
        Coached,
        around(lambda env: [env]),
        around(lambda env: SimpleNamespace(env=env)),
        around(lambda env: {"own": partial(env.step)}),
        around(lambda env: lambda: env),
        around(lambda env: (step for step in [env.step])),
        around(lambda env: [[*range(1000, 120_000)], [[env]]]),
    ],
)
def test_a_wrapper_may_hold_its_environment_anywhere(wrapper):
    Maker(GUESS, {}, (wrapper,))().close()


def test_a_class_without_init_takes_no_arguments():
    class Bare(Env):
        pass

    Bare()
    for make in (lambda: Bare(1), lambda: Bare(turns=3)):
        with pytest.raises(UnknownArgument, match=r"Bare\(\) has no __init__ and takes no arguments"):
            make()


def test_a_class_may_take_its_arguments_in_new():
    class Sized(EchoEnv):
        __init__ = object.__init__

        def __new__(cls, size=3):
            made = super().__new__(cls, size=size)
            made.size = size
            return made

    assert Sized(size=5).size == Sized(5).size == 5


def test_a_maker_of_a_maker_adds_keywords_and_wrappers():
    inner = Maker(GUESS, {"max_turns": 3, "max_number": 9}, (EnvWrapper,))
    outer = Maker(inner, {"max_turns": 4}, (EnvWrapper,))
    assert outer == Maker(GUESS, {"max_turns": 4, "max_number": 9}, (EnvWrapper, EnvWrapper))
    assert gem.make(inner, max_turns=5).spec.max_turns == 5
    with pytest.raises(BadArgument, match="as settings: env, env_kwargs, wrappers"):
        registry.name_env(inner)


@pytest.mark.parametrize("wrong", [7, EchoEnv(), int])
def test_what_makes_no_environment_is_refused_at_every_door(wrong):
    doors = gem.make, partial(evaluate, ScriptedAgent(["x"] * 9)), gem.make_vec, registry.name_env
    for door in doors:
        with pytest.raises(BadArgument, match=r"accepted: .*(class|subclass)"):
            door(wrong)


def test_an_object_of_another_process_is_said_to_be_one():
    with pytest.raises(BadArgument, match="which a program gave as an object; give it again"):
        gem.make("value:Gone")


def test_start_and_step_come_through_make():
    env = gem.make("game:GuessTheNumber-v0-easy", seed=0)
    assert isinstance(env.reset(), Start)
    assert isinstance(env.step("\\boxed{5}"), Step)
