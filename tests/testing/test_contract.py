"""Each rule of the contract suite has an environment here that breaks it, and is caught."""

import inspect
import math
import pickle
import random
import secrets
import threading
from pathlib import Path

import pytest
from waiting import until

from gem.cli.check import environment
from gem.content import ToolSpec, check_obs
from gem.core import EnvWrapper, Start, Step
from gem.envs.kit.text_game import Play, TextGame
from gem.errors import BadAction, BadArgument, ContractBroken, NoSolver, UnknownEnv
from gem.registry import EnvSpec
from gem.seats import SeatedGame
from gem.testing import RULES, EchoEnv, Fault, Faults, FaultyWrapper, Fell, check_env
from gem.testing.faults import release
from gem.tools.base_tool import FunctionTool
from gem.tools.calls import find
from gem.tools.tool_env_wrapper import ToolEnvWrapper
from gem.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


class Broken(EchoEnv):
    """Give subclasses the docstring that the rules ask for."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.__doc__ = EchoEnv.__doc__


class SolvesNothing(Broken):
    def solve(self):
        return None


class ShowsNothing(Broken):
    def reset(self, seed=None):
        super().reset(seed)
        check_obs(None)


class NeedsMore(Broken):
    def __init__(self, more):
        super().__init__()


class NoDocstring(EchoEnv):
    pass


class EmptyHeading(EchoEnv):
    __doc__ = inspect.cleandoc(EchoEnv.__doc__).replace("    After `turns` turns.\n", "")


class Mute(Broken):
    def reset(self, seed=None):
        super().reset(seed)
        return Start("", {})


class SaysInfinite(Broken):
    def step(self, action):
        return super().step(action)._replace(reward=math.inf)


class SaysMaybe(Broken):
    def step(self, action):
        return super().step(action)._replace(terminated=None)


class RewardsTrue(Broken):
    def step(self, action):
        return super().step(action)._replace(reward=True)


class StopsSomehow(Broken):
    def step(self, action):
        step = super().step(action)
        return step._replace(info={"stop": "somehow"} if step.done else {})


class FourTuple(Broken):
    def step(self, action):
        return super().step(action)[:4]


class BreaksTheChain(Broken):
    def reset(self, seed=None):
        return super().reset(secrets.randbits(60) if seed is None else seed)


class SaltsEachInstance(Broken):
    def __init__(self):
        super().__init__()
        self.salt = secrets.randbits(60)

    def reset(self, seed=None):
        obs, info = super().reset(seed)
        return Start(f"{obs} {self.salt}", info)


class CountsOnTheClass(Broken):
    count = 0

    def reset(self, seed=None):
        type(self).count = 0
        return super().reset(seed)

    def step(self, action):
        type(self).count += 1
        step = super().step(action)
        return step._replace(obs=f"{step.obs} {self.count}")


class DrawsGlobally(Broken):
    def step(self, action):
        random.getrandbits(1)
        return super().step(action)


class SamplesFromTheWorld(Broken):
    def sample_random_action(self):
        return str(self.rng.randrange(1000))


class SamplesIllegally(Broken):
    def step(self, action):
        step = super().step(action)
        return step._replace(info={**step.info, "legal": False})


class ForgetsTheTurn(Broken):
    shared = ("turn",)


class SharesALog(Broken):
    shared = ("log",)

    def reset(self, seed=None):
        self.log = []
        return super().reset(seed)

    def step(self, action):
        self.log.append(action)
        step = super().step(action)
        return step._replace(obs=f"{step.obs} {len(self.log)}")


class ActsOnItsOriginal(Broken):
    def reset(self, seed=None):
        self.table = {"turn": lambda: self.turn}
        return super().reset(seed)


class Forgets(list):
    def __deepcopy__(self, memo):
        return Forgets(self)

    def __reduce__(self):
        return Forgets, ()


class ArrivesOtherwise(Broken):
    def reset(self, seed=None):
        self.log = Forgets()
        return super().reset(seed)

    def step(self, action):
        self.log.append(action)
        step = super().step(action)
        return step._replace(obs=f"{step.obs} {len(self.log)}")


class KnowsItself(Broken):
    def reset(self, seed=None):
        self.me, self.table = self, {"ask": self._ask}
        return super().reset(seed)

    def step(self, action):
        step = super().step(action)
        return step._replace(obs=f"{step.obs} {self.me.table['ask']()}")

    def solve(self):
        return str(self.me.number)


class HoldsAFunction(Broken):
    shared = ("hook",)

    def __init__(self):
        super().__init__()
        self.hook = lambda: None


class KnowsItsThread(Broken):
    def reset(self, seed=None):
        obs, info = super().reset(seed)
        return Start(f"{obs} {threading.current_thread() is threading.main_thread()}", info)


class Truncates(Broken):
    def step(self, action):
        step = super().step(action)
        return step._replace(terminated=False, truncated=step.done)


class SolvesWrongly(Broken):
    def solve(self):
        return "-1"


class WantsNumbers(Broken):
    def step(self, action):
        int(action)
        return super().step(action)


class TrustsADigit(Broken):
    def step(self, action):
        if action[:1].isdigit():  # as in a right answer, of which it is a mutation
            int(action)
        return super().step(action)


def step_takes_anything(self, action):
    return Broken.step(self, str(action))


def step_ends_nothing(self, action):
    if not isinstance(action, str):
        raise BadAction
    if self._phase == "over":
        self._phase = "running"
    return Broken.step(self, action)


class TakesAnything(Broken):
    pass


class NeverOver(Broken):
    pass


TakesAnything.step = step_takes_anything  # past the guard of gem.Env
NeverOver.step = step_ends_nothing


class TakesAnyOption(Broken):
    def reset(self, seed=None, **options):
        return super().reset(seed)


class TakesAnyKeyword(Broken):
    def __init__(self, **kwargs):
        super().__init__()


class TakesAnySeed(Broken):
    def reset(self, seed=None):
        return super().reset(seed if seed is None else abs(int(seed)))


class ClosesOnce(Broken):
    closed = False


def close_once(self):
    if self.closed:
        raise RuntimeError("closed already")
    self.closed = True
    Broken.close(self)


ClosesOnce.close = close_once


def claims(env_class, solver="exact", **kwargs):
    return EnvSpec("test:Env-v0", env_class, solver=solver, **kwargs)


SOLVED = claims(EchoEnv)


def hint(description="Get a hint.", schema=None, name="hint"):
    return ToolSpec(name, description, schema or {"type": "object", "properties": {}})


class HasATool(Broken):
    tool_specs = (hint(),)

    def step(self, action):
        step = super().step(action)
        called = [each for each in find(action, ()) if each.call and each.call.name == "hint"]
        return step._replace(obs=f"It is odd.\n{step.obs}") if called else step


class HasADeafTool(HasATool):
    tool_specs = (hint(), hint(name="other"))


class RefusesItsTool(HasATool):
    def step(self, action):
        step = super().step(action)
        return step._replace(info={**step.info, "legal": False}) if "hint" in action else step


class HasAVagueTool(HasATool):
    tool_specs = (hint(description=" "),)


class HasAListOfArguments(HasATool):
    tool_specs = (hint(schema={"type": "array"}),)


class HasTwoToolsOfOneName(HasATool):
    tool_specs = (hint(), hint("Get another."))


class SaysOtherTools(HasATool):
    def reset(self, seed=None):
        start = super().reset(seed)
        start.info["tools"] = []
        return start


BREAKS = [
    # what is judged, the rules that it breaks
    (lambda: object(), {"is-env"}),
    (claims(NoDocstring), {"docstring"}),
    (claims(EchoEnv, seats=("north", "south")), {"seats"}),
    (EmptyHeading, {"docstring"}),
    (Mute, {"reset-returns"}),
    (SaysInfinite, {"step-returns", "fork-replay", "hostile-actions"}),
    (SaysMaybe, {"step-returns", "fork-replay", "hostile-actions"}),
    (RewardsTrue, {"step-returns", "fork-replay", "hostile-actions"}),
    (StopsSomehow, {"step-returns", "fork-replay"}),
    (BreaksTheChain, {"same-seed"}),
    (SaltsEachInstance, {"same-seed", "threads"}),
    (CountsOnTheClass, {"neighbours", "save-restore", "fork-replay", "pickles"}),
    (DrawsGlobally, {"global-rng"}),
    (SamplesFromTheWorld, {"actor-stream"}),
    (SamplesIllegally, {"legal-sampling", "solver"}),
    (ForgetsTheTurn, {"save-restore"}),
    (SharesALog, {"save-restore", "fork-replay"}),
    (ActsOnItsOriginal, {"save-restore", "fork-replay", "pickles", "hostile-actions"}),
    (ArrivesOtherwise, {"save-restore"}),
    (HoldsAFunction, {"pickles"}),
    (KnowsItsThread, {"threads"}),
    (claims(Truncates), {"ends"}),
    (claims(EchoEnv, max_turns=2), {"ends", "solver"}),
    (claims(SolvesWrongly), {"solver"}),
    (claims(EchoEnv, solver="none"), {"solver"}),
    (claims(EchoEnv, solver="measured", solver_rate=0.5), {"solver"}),
    (WantsNumbers, {"hostile-actions"}),
    (TrustsADigit, {"hostile-actions"}),
    (TakesAnything, {"text-only"}),
    (NeverOver, {"order-of-calls"}),
    (TakesAnyOption, {"unknown-keywords"}),
    (claims(TakesAnyKeyword), {"unknown-keywords"}),
    (TakesAnySeed, {"bad-seeds"}),
    (ClosesOnce, {"close-twice", "order-of-calls"}),
    (HasADeafTool, {"tools-reachable"}),
    (RefusesItsTool, {"tools-reachable"}),
    (HasAVagueTool, {"tools-declared"}),
    (HasAListOfArguments, {"tools-declared"}),
    (HasTwoToolsOfOneName, {"tools-declared"}),
    (SaysOtherTools, {"tools-declared"}),
]


class StatesFewerTurns(EchoEnv):
    max_turns = 2


def test_turns_that_a_class_states_are_its_budget():
    broken = check_env(StatesFewerTurns, seeds=[0], rules=["ends"])
    assert "went on after the 2 turns that it states" in str(broken)
    added = check_env(lambda: EnvWrapper(StatesFewerTurns()), seeds=[0], rules=["ends"])
    assert added.ok


def test_a_class_without_an_id_needs_no_headings():
    report = check_env(NoDocstring, seeds=[0])
    assert report.ok
    assert "docstring" in report.skipped


def test_an_environment_that_refers_to_itself_breaks_no_rule():
    assert check_env(KnowsItself).ok


@pytest.mark.parametrize(("target", "rules"), BREAKS, ids=lambda value: getattr(value, "__name__", None))
def test_a_broken_environment_is_caught_by_its_rules_and_no_others(target, rules):
    report = check_env(target)
    broken = {rule for finding in report.findings for rule in finding.rules}
    assert broken == rules, str(report)
    assert not report.ok
    with pytest.raises(ContractBroken):
        report.raise_if_broken()


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "rule", "opted", "seen"),
    [
        ("HashOrdered", "hash-seed", {"hash_seed": True}, "different transcripts"),
        ("KnowsItsProcess", "same-on-every-host", {"hosts": True}, "another transcript"),
        ("NeedsItsMainProcess", "same-on-every-host", {"hosts": True}, "broke on the process host"),
    ],
)
def test_what_only_another_process_shows_is_caught(monkeypatch, name, rule, opted, seen):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    spec = EnvSpec("test:Env-v0", f"elsewhere:{name}", solver="exact")
    assert check_env(spec).ok
    report = check_env(spec, **opted)
    assert [finding.rule for finding in report.findings] == [rule], str(report)
    assert seen in report.findings[0].seen


@pytest.mark.system
@pytest.mark.parametrize("place", ["elsewhere", f"{Path(__file__).parent}/elsewhere.py"])
@pytest.mark.parametrize(
    ("name", "rule"), [("HashOrdered", "hash-seed"), ("HasNoActor", "same-on-every-host")]
)
def test_a_class_without_an_id_is_checked_in_other_processes(monkeypatch, place, name, rule):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    made = environment(f"{place}:{name}")
    report = check_env(made, hash_seed=True, hosts=True, rules=[rule, "dying-workers"], seeds=[0])
    assert rule in [finding.rule for finding in report.findings], str(report)
    assert not report.skipped


def test_what_no_other_process_can_import_is_not_checked_there():
    report = check_env(lambda: EchoEnv(), hash_seed=True, rules=["hash-seed"])
    assert "no other process can import it" in report.skipped["hash-seed"]


def test_every_rule_is_broken_by_some_environment_here():
    caught = set().union(*(rules for _, rules in BREAKS)) | {"hash-seed", "same-on-every-host"}
    assert caught == set(RULES)


@pytest.mark.parametrize(
    "target",
    [
        EchoEnv,
        EchoEnv(turns=1),
        EnvWrapper(EchoEnv()),
        SOLVED,
        FaultyWrapper(EchoEnv(), Faults()),
        lambda: EchoEnv(5),
        HasATool,
        EnvWrapper(HasATool()),
        lambda: ToolEnvWrapper(HasATool(), [FunctionTool(double)]),
        lambda: EpisodeTrackingWrapper(EchoEnv()),
    ],
    ids=[
        "class",
        "instance",
        "wrapped",
        "spec",
        "faultless",
        "callable",
        "tool",
        "wrapped tool",
        "tools around",
        "tracked",
    ],
)
def test_a_sound_environment_breaks_no_rule(target):
    report = check_env(target)
    assert report.ok, str(report)
    report.raise_if_broken()


def test_tools_of_a_wrapper_are_judged_with_those_inside():
    def make():
        return ToolEnvWrapper(HasATool(), [FunctionTool(double)])

    assert check_env(make, rules=["tools-declared", "tools-reachable"]).held == (
        "tools-declared",
        "tools-reachable",
    )


def test_what_is_not_claimed_is_not_judged():
    class Unforkable(Broken):
        forkable = False

    report = check_env(claims(Unforkable, deterministic=False, forkable=False, thread_safe=False))
    assert report.ok, str(report)
    assert {"same-seed", "threads", "fork-replay", "hash-seed"} <= set(report.skipped)
    assert check_env(Unforkable, rules=["fork-replay"]).skipped == {
        "fork-replay": "it does not claim to be forkable"
    }
    assert check_env(SolvesWrongly, rules=["solver"]).ok  # it is not registered: nothing is claimed
    (found,) = check_env(SolvesNothing, rules=["solver"]).findings  # but it has to play
    assert found.seen == "solve() returned a NoneType"


def test_a_measured_solver_is_held_to_its_rate():
    class SolvesHalf(Broken):
        def solve(self):
            return super().solve() if self.seed % 2 else "-1"

    assert check_env(claims(SolvesHalf, "measured", solver_rate=0.5), rules=["solver"]).ok
    assert not check_env(claims(SolvesHalf, "measured", solver_rate=0.9), rules=["solver"]).ok


def test_the_report_says_what_was_seen_and_what_to_change():
    text = str(check_env(WantsNumbers))
    assert text.startswith("WantsNumbers: 21 rules hold, 1 broken, 4 skipped")
    assert "hostile-actions: empty: ValueError was raised" in text
    assert "in step() (test_contract.py:" in text
    assert "skipped hash-seed: slow; asked for with hash_seed=True" in text


def test_advice_names_the_environments_own_code():
    (found,) = check_env(ShowsNothing, rules=["reset-returns"]).findings
    assert found.change.startswith("handle that in reset() (test_contract.py:")
    (found,) = check_env(NeedsMore).findings  # it cannot be made, and no other rule is tried
    assert (found.rule, found.change) == ("is-env", "handle that in the environment's class.")


def test_a_four_tuple_is_named_by_what_it_raises():
    report = check_env(FourTuple, rules=["step-returns"])
    assert "step of <FourTuple> returned 4 values (str, float, bool, bool)" in report.findings[0].seen


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: check_env(EchoEnv, rules=["same-sed"]), "Did you mean 'same-seed'"),
        (lambda: check_env(EchoEnv, seeds=()), "no seeds"),
        (lambda: check_env(7), "cannot check a int"),
    ],
)
def test_a_wrong_question_is_refused(call, error):
    with pytest.raises(BadArgument, match=error):
        call()
    with pytest.raises(UnknownEnv):
        check_env("game:NoSuchGame")


def faulty(kind, **where):
    return FaultyWrapper(EchoEnv(), Faults([Fault("env", kind, **where)]))


def test_a_faulty_env_breaks_at_its_moment():
    env = faulty("raise", at=2, of=[7])
    env.reset(seed=6)
    for _ in range(3):
        step = env.step("0")
    assert step.done
    env.reset(seed=7)
    env.step("0")
    with pytest.raises(Fell):
        env.step("0")
    with pytest.raises(Fell):
        faulty("raise", at=0).reset(seed=1)


def test_a_hanging_env_goes_on_when_it_is_released():
    env = faulty("hang", at=1)
    env.reset(seed=0)
    steps = []
    thread = threading.Thread(target=lambda: steps.append(env.step("0")))
    thread.start()
    until(lambda: release() or steps)  # a release before the hang would free nobody
    thread.join()
    assert isinstance(steps[0], Step)


def test_echo_pays_for_what_is_right():
    with EchoEnv(turns=2) as env:
        env.reset(seed=0)
        assert env.step(env.solve()).reward == 0.5
        obs, reward, terminated, truncated, info = env.step("wrong")
        assert (obs, reward, terminated, truncated) == ("1 of 2 were right.", 0.0, True, False)
        assert info == {"success": False, "stop": "failed"}
        assert pickle.loads(pickle.dumps(env)).right == 1
        with pytest.raises(NoSolver):
            EnvWrapper(
                type("Plain", (EchoEnv,), {"solve": lambda self: super(EchoEnv, self).solve()})()
            ).solve()


class MisspellsDeal(TextGame):
    def __init__(self):
        super().__init__(1, "sparse")

    def dael(self):
        return "Say a."

    def parse(self, move):
        return move

    def play(self, move):
        return Play.win()

    def random_move(self):
        return "a"


class ForgetsSuper(MisspellsDeal):
    def __init__(self):
        self.letter = "a"

    def deal(self):
        return "Say a."


class MisspellsAttribute(Broken):
    def step(self, action):
        return super().step(str(self.nubmer))


class WrapperForgetsSuper(EnvWrapper):
    def __init__(self):
        self.letter = "a"


class TellsAStranger(SeatedGame):
    seats = ("x", "y")

    def __init__(self):
        super().__init__(max_turns=2)

    def deal(self):
        self.tell("z", "Say a word.")


@pytest.mark.parametrize(
    ("target", "seen", "place"),
    [
        (TellsAStranger, "seat is 'z'; accepted: x, y", "in deal() (test_contract.py:"),
        (MisspellsDeal, "MisspellsDeal must define deal()", "in the class MisspellsDeal (test_contract.py:"),
        (ForgetsSuper, "no attribute 'render_mode'", "super().__init__()?"),
        (MisspellsAttribute, "no attribute 'nubmer'", "in step() (test_contract.py:"),
    ],
)
def test_one_mistake_is_one_finding_with_file_and_line(target, seen, place):
    report = check_env(target)
    (found,) = report.findings
    assert seen in found.seen
    assert place in found.change
    assert len(found.also) > 5
    assert f"{len(found.rules)} broken" in str(report)
    assert f"The same in {len(found.also)} more rules, in {found.calls[0]}" in str(report)


def test_a_wrapper_without_an_environment_is_a_finding():
    (found, *_) = check_env(WrapperForgetsSuper, seeds=[0]).findings
    assert "has no attribute 'env'" in found.seen
    assert "in the class WrapperForgetsSuper" in found.change


class RaisesTwice(Broken):
    def step(self, action):
        raise ValueError("the same")

    def solve(self):
        raise ValueError("the same")


def test_two_mistakes_are_two_findings():
    places = [finding.change for finding in check_env(RaisesTwice).findings]
    assert len(places) == 2
