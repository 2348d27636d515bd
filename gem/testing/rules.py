"""The rules of the contract, one function each.

A rule gets a `Subject` and returns if the rule holds; it raises `Broken` with what was seen and what to
change, or `Skip` if the rule does not apply to the environment's claims. An unexpected error counts as broken
too. To add a rule, write one function, and an environment in `tests/testing/test_contract.py` that breaks it.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import pickle
import random
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from gem import errors, registry
from gem.agents.scripted import ScriptedAgent
from gem.content import ToolCall, ToolSpec, check_obs, text_of, written_tools
from gem.core import Env
from gem.record import SEAT, StopReason
from gem.seats import MultiStep, SeatedEnv
from gem.seeding import stream
from gem.specs import name_of
from gem.testing.deadline import Deadline
from gem.testing.places import where
from gem.testing.transcripts import (
    PLAIN_ACTION,
    Transcript,
    act,
    difference,
    everybody,
    future,
    hash_seed_dependent,
    host_dependent,
    transcript,
)
from gem.tools import calls

HEADINGS = ("Task", "Action", "Observation", "Reward", "End", "Source")
"""The headings of an environment's docstring, in this order."""

MEASURED_TURNS = 20_000
"""About how many turns a measured solver plays to show its rate: 100 episodes, or at least 20 long ones."""

HOSTILE: dict[str, str] = {
    "empty": "",
    "blank": " \n\t",
    "unreadable": "I would rather not say.",
    "an empty box": "\\boxed{}",
    "an open box": "\\boxed{7",
    "20,000 open boxes": "\\boxed{" * 20_000,
    "1 MB of text": "x" * 1_000_000,
    "a 1 MB number": "\\boxed{" + "9" * 1_000_000 + "}",
    "a surrogate": "\\boxed{\ud800}",
    "a NUL": "\\boxed{\x00}",
    "not a number": "\\boxed{nan}",
    "an infinite number": "\\boxed{1e999}",
    "a negative number": "\\boxed{-1}",
    "digits of another script": "\\boxed{٣}",
    "code": "\\boxed{__import__('os').abort()}",
    "a format string": "\\boxed{%n%s{0.__class__}}",
    "a terminal's escape": "\\boxed{\x1b[2J}",
    "tags": "</answer><answer></answer>",
    "half a tag": "<answer",
    "a tag in itself": "<answer>" * 2000,
    "brackets 100,000 deep": "[" * 100_000 + "]" * 100_000,
    "JSON 5,000 deep": '{"a":' * 5000 + "1" + "}" * 5000,
    "JSON that is no object": "<tool_call>[[null]]</tool_call>",
    "a call without a name": '<tool_call>{"arguments": {}}</tool_call>',
    "a call with numbers that JSON lacks": '<tool_call>{"name": "x", "arguments": {"x": NaN}}</tool_call>',
    "a call with an integer of 5,000 digits": '<tool_call>{"name": "x", "arguments": {"x": %s}}</tool_call>'
    % ("9" * 5000),
    "a call with half a surrogate": '<tool_call>{"name": "\\ud800", "arguments": {"\\udfff": 1}}</tool_call>',
    "an XML bomb": '<!DOCTYPE a [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><a>&b;</a>',
    "a LaTeX bomb": "\\boxed{\\def\\a{\\a\\a}\\a}",
    "fractions 1,000 deep": "\\boxed{" + r"\frac{1}{" * 1000 + "2" + "}" * 1001,
    "a tower of powers": "\\boxed{9^{9^{9^{9}}}}",
    "SQL": "<sql>'; DROP TABLE t; --</sql>",
    "SQL with a NUL": "<sql>SELECT '\x00\ud800'</sql>",
    "an open fence": "```python\nprint(\ud800",
    "a shell": "<bash>$(:(){ :|:& };:",
    "two directions": "\u202e\\boxed{\u20661\u2069}",
    "10,000 accents": "e" + "\u0301" * 10_000,
    "surrogates alone": "\udfff\ud800",
    "line ends of all kinds": "\r\n\r\x0b\x0c\x85\u2028\u2029",
}
"""Actions that must be handled as answers, whatever they say."""

FULL_REWARD = 1.0
_PIECES = (
    *(
        "\ud800",
        "\x00",
        "\u202e",
        "\u0301",
        "\\",
        "{",
        "}",
        "[",
        "]",
        "<",
        ">",
        '"',
        "'",
        "|",
        "_",
        "^",
        "$",
        "%",
        "&",
    ),
    *(
        "nan",
        "inf",
        "-",
        ".",
        ",",
        "1e999",
        "9" * 5000,
        "٣",
        "½",
        "null",
        "\n",
        "\t",
        " ",
        "</answer>",
        "\\boxed{",
        "```",
    ),
)
_MUTATIONS = 12
_PLAY_CAP = 1000  # turns of random play after which an environment without a stated budget is let off


class Broken(Exception):
    """A rule that does not hold: what was seen, and what to change."""

    def __init__(self, problem: str, change: str) -> None:
        """Keep both."""
        super().__init__(problem, change)
        self.problem = problem
        self.change = change


class Skip(Exception):
    """A rule that does not apply, and why."""


@dataclass(slots=True)
class Subject:
    """The environment under test: how to make one, its claims, and the seeds to try.

    `claims` is None for an unregistered environment; then its solver is not checked.
    """

    name: str
    maker: Callable[..., Env]
    claims: registry.EnvSpec | None
    seeds: tuple[int, ...]
    turns: int
    hosts: bool
    hash_seed: bool
    deadline: Deadline | None = None
    opened: ExitStack = field(default_factory=ExitStack)

    def make(self, **kwargs: Any) -> Env:
        """Make an environment; it is closed after the rule."""
        env = self.maker(**kwargs)
        self.opened.callback(env.close)
        return env

    def deterministic(self) -> None:
        """Raise Skip if the environment does not claim to be deterministic."""
        if self.claims and not self.claims.deterministic:
            raise Skip("it does not claim to be deterministic")

    def forkable(self, env: Env) -> bool:
        """Return whether the environment claims that it can be forked."""
        return env.forkable and (self.claims is None or self.claims.forkable)


Rule: TypeAlias = Callable[[Subject], None]
RULES: dict[str, Rule] = {}
"""Every rule by name, in the order in which they run."""


def rule(check: Rule) -> Rule:
    """Add a function to RULES under its own name, with hyphens."""
    RULES[check.__name__.replace("_", "-")] = check
    return check


# -- what several rules need


def _same(one: Transcript, other: Transcript, what: str, change: str) -> None:
    """Raise Broken if two transcripts differ."""
    first_difference = difference(one, other)
    if first_difference:
        raise Broken(f"{what}: {first_difference}", change)


def _raises(kind: type[Exception], call: Callable[[], object], what: str, change: str) -> None:
    """Raise Broken unless `call` raises `kind`."""
    try:
        call()
    except kind:
        return
    except Exception as error:
        raise Broken(f"{what} raised {type(error).__name__} instead of {kind.__name__}", change) from error
    raise Broken(f"{what} went through; wanted is {kind.__name__}", change)


def _check_step(step: tuple[Any, ...], what: str) -> None:
    change = "step() returns (text, finite number, bool, bool, dict)"
    if not isinstance(step, tuple) or len(step) != 5:
        raise Broken(f"{what}: step() returned {str(step)[:100]}", change)
    if isinstance(step[1], dict):  # of several seats; that the keys are right, SeatedEnv sees to
        for seat in step[1]:
            own = (step[0].get(seat, ""), *(column[seat] for column in step[1:]))
            _check_step(own, f"{what}, seat {seat}")
        return
    check_obs(step[0])
    reward = step[1]
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise Broken(f"{what}: the reward is {reward!r}, a {type(reward).__name__}", change)
    if not math.isfinite(reward):
        raise Broken(f"{what}: the reward is {reward}", "raise NoVerdict where no score can be given")
    for flag, value in (("terminated", step[2]), ("truncated", step[3])):
        if not isinstance(value, bool):
            raise Broken(f"{what}: {flag} is {value!r}, a {type(value).__name__}", change)
    info = step[4]
    if not isinstance(info, dict):
        raise Broken(f"{what}: info is a {type(info).__name__}", change)
    if "success" in info and not isinstance(info["success"], bool):
        raise Broken(f"{what}: info['success'] is {info['success']!r}", "success is a bool")
    if "stop" in info and info["stop"] not in [reason.value for reason in StopReason]:
        raise Broken(f"{what}: info['stop'] is {info['stop']!r}", "stop is a value of StopReason")


def _elsewhere(case: Subject) -> registry.EnvSpec:
    """Return the spec by which another process can make the environment, or skip."""
    entry_point = case.claims.entry_point if case.claims else case.maker
    place = entry_point if isinstance(entry_point, str) else name_of(entry_point)
    if place is None:
        raise Skip("no other process can import it; check an id, or what a file or a module defines")
    return replace(case.claims or registry.EnvSpec(place, place), entry_point=place)


def _attempt_solve(env: Env, seed: int | None = None) -> None:
    if seed is not None:
        env.reset(seed=seed)
    with suppress(errors.NoSolver):
        env.solve()


def _global_states() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return (random.getstate(), None)
    name, keys, position, has_gauss, gauss = numpy.random.get_state()
    return (random.getstate(), (name, keys.tobytes(), position, has_gauss, gauss))


# -- the rules


@rule
def is_env(case: Subject) -> None:
    """An environment is a gem.Env."""
    env = case.maker()
    if not isinstance(env, Env):
        raise Broken(f"it makes a {type(env).__name__}", "subclass gem.Env")
    env.close()


@rule
def docstring(case: Subject) -> None:
    """The class's docstring has the six headings, in order, each with text under it.

    A class without an id needs none of them: its page is made from them only once it is registered.
    """
    made = type(case.make().unwrapped)
    lines = inspect.cleandoc(made.__dict__.get("__doc__") or "").splitlines()
    headings = [line.removesuffix(":") for line in lines if line.removesuffix(":") in HEADINGS]
    if not headings and case.claims is None:
        raise Skip(f"it has no id; with one, its docstring needs the headings {', '.join(HEADINGS)}")
    if tuple(headings) != HEADINGS:
        missing = [heading for heading in HEADINGS if heading not in headings]
        fault = f"{made.__name__} lacks {', '.join(missing)}" if missing else f"headings are {headings}"
        raise Broken(
            fault, f"give the class a docstring with the headings {', '.join(HEADINGS)}, in this order"
        )
    for heading in HEADINGS:
        after = lines[lines.index(f"{heading}:") + 1 :]
        if not after or not after[0].startswith(" "):
            raise Broken(f"{made.__name__}: there is nothing under {heading}", "say it in a line or two")


@rule
def reset_returns(case: Subject) -> None:
    """reset() returns an observation and an info dict."""
    env = case.make()
    for seed in case.seeds:
        start: tuple[Any, ...] = env.reset(seed=seed)
        if not isinstance(start, tuple) or len(start) != 2 or not isinstance(start[1], dict):
            raise Broken(f"reset() returned {str(start)[:100]}", "return Start(observation, info)")
        observations = start[0].values() if isinstance(start[0], dict) else [start[0]]
        for obs in observations:
            check_obs(obs)
            if not obs:
                raise Broken(f"seed {seed}: the first observation is empty", "tell the agent its task")


@rule
def step_returns(case: Subject) -> None:
    """step() returns observation, finite reward, two bools and an info dict."""
    env = case.make()
    for seed in case.seeds:
        env.reset(seed=seed)
        for turn in range(case.turns):
            step = env.step(act(env))
            _check_step(step, f"seed {seed}, turn {turn}")
            if step.done:
                break


@rule
def same_seed(case: Subject) -> None:
    """The same seed gives the same transcript: on two instances, repeated on one, and in later episodes."""
    case.deterministic()
    change = "draw chance from self.rng alone, and let reset() set everything anew"
    one, other = case.make(), case.make()
    for seed in case.seeds:
        first = transcript(one, seed, case.turns)
        _same(first, transcript(other, seed, case.turns), f"seed {seed} on two instances", change)
        _same(first, transcript(one, seed, case.turns), f"seed {seed} again on one instance", change)
        following = [tuple(env.reset()) for env in (one, other)]
        _same(following[:1], following[1:], f"reset() after seed {seed} on two instances", change)
        again = [tuple(one.reset(seed=other.seed))]
        _same(
            following[:1], again, "reset(seed=env.seed) after reset()", "begin reset with super().reset(seed)"
        )


@rule
def neighbours(case: Subject) -> None:
    """An environment is not affected by steps of another instance."""
    case.deterministic()
    env, neighbour = case.make(), case.make()
    for seed in case.seeds:
        alone = transcript(env, seed, case.turns)
        neighbour.reset(seed=seed + 1)

        def disturb(env: Env, seed: int = seed) -> Any:
            action = act(env)
            if neighbour.step(act(neighbour)).done:
                neighbour.reset(seed=seed + 2)
            return action

        _same(
            alone,
            transcript(env, seed, case.turns, disturb),
            f"seed {seed} with a neighbour",
            "keep state on the instance: not on the class, not in the module",
        )


@rule
def global_rng(case: Subject) -> None:
    """No call changes the global generators of random and numpy."""
    change = "draw from self.rng; guard a library that seeds or draws from the global generators"
    before = _global_states()
    env = case.make()
    made = _global_states()
    if made[0] != before[0] or before[1] not in (None, made[1]):  # None: making it loaded numpy
        raise Broken("making it changed a global generator", change)
    before = made
    for seed in case.seeds:
        transcript(env, seed, case.turns)
        _attempt_solve(env, seed)
        if _global_states() != before:
            raise Broken(f"seed {seed}: playing changed a global generator", change)


@rule
def actor_stream(case: Subject) -> None:
    """Sampling an action, or asking the solver, does not change the world."""
    case.deterministic()
    env = case.make()

    def pondering(env: Env) -> Any:
        _attempt_solve(env)
        return act(env)

    for seed in case.seeds:
        played = transcript(env, seed, case.turns, pondering)
        taken = iter([entry[0] for entry in played[1:]])
        _same(
            played,
            transcript(env, seed, len(played) - 1, lambda env, taken=taken: next(taken)),  # type: ignore[misc]
            f"seed {seed} again, with neither sampling nor solving",
            "draw from self.actor_rng in sample_random_action(), and change nothing there or in solve()",
        )


@rule
def legal_sampling(case: Subject) -> None:
    """sample_random_action() returns text that the environment can read and the rules allow."""
    if not _plays_by_the_rules(case, case.make(), "sample_random_action"):
        raise Skip("it has no random actor")


def _plays_by_the_rules(case: Subject, env: Env, verb: str) -> bool:
    """Play with a method of the environment; return False if there is none, raise Broken if it errs."""
    for seed in case.seeds:
        env.reset(seed=seed)
        for turn in range(case.turns):
            try:
                action: Any = getattr(env, verb)()
            except errors.NoSolver:
                return False
            for text in action.values() if isinstance(action, dict) else [action]:
                if not isinstance(text, str):
                    raise Broken(f"{verb}() returned a {type(text).__name__}", "return text")
            step = env.step(action)
            for info in step.infos.values() if isinstance(step, MultiStep) else [step.info]:
                if info.get("legal") is False or info.get("stop") == StopReason.UNREADABLE.value:
                    raise Broken(
                        f"seed {seed}, turn {turn}: {str(action)[:80]!r} was refused: {str(step.obs)[:99]!r}",
                        f"let {verb}() return only what the rules allow in this position",
                    )
            if step.done:
                break
    return True


@rule
def save_restore(case: Subject) -> None:
    """A saved state, restored on the same instance or, pickled, on another, continues in the same way."""
    case.deterministic()
    env = case.make()
    if not case.forkable(env):
        _raises(errors.CannotFork, env.get_state, "get_state()", "set forkable = False on the class")
        raise Skip("it does not claim to be forkable")
    change = "keep state in plain attributes of the instance; list what is not state in `shared`"
    other = case.make()
    for seed in case.seeds:
        env.reset(seed=seed)
        future(env, 1)
        if env.unwrapped._phase == "over":
            env.reset(seed=seed)
        state = env.get_state()
        first = future(env, case.turns)
        env.set_state(state)
        _same(first, future(env, case.turns), f"seed {seed}, restored", change)
        other.set_state(_pickle_and_load(state))
        _same(first, future(other, case.turns), f"seed {seed}, restored on another instance", change)


def _pickle_and_load(state: Any) -> Any:
    """Return a state as another process gets it; the state itself if it cannot be pickled."""
    try:
        pickled = pickle.dumps(state)
    except Exception:  # forks of it play the actions again in other processes
        return state
    return pickle.loads(pickled)


@rule
def fork_replay(case: Subject) -> None:
    """A fork() continues in the same way, independently; fork(seed) can be played on to the same answer."""
    case.deterministic()
    env = case.make()
    if not case.forkable(env):
        _raises(errors.CannotFork, env.fork, "fork()", "set forkable = False on the class")
        raise Skip("it does not claim to be forkable")
    change = "copy what changes: only what is never written may be in `shared`"
    for seed in case.seeds:
        env.reset(seed=seed)
        twin = env.fork()
        case.opened.callback(twin.close)
        first = future(twin, case.turns)
        _same(first, future(env, case.turns), f"seed {seed}, forked", change)
        env.reset(seed=seed)
        redrawn = env.fork(seed=seed)
        case.opened.callback(redrawn.close)
        missing = object()
        if getattr(redrawn.unwrapped, "answer", missing) != getattr(env.unwrapped, "answer", missing):
            dealt = "what was dealt at reset is state: draw it there, from what the seed gives then"
            raise Broken(f"seed {seed}, fork(seed={seed}): another answer than the prompt's", dealt)
        for entry in future(redrawn, case.turns):
            _check_step(entry[1:], f"seed {seed}, fork(seed={seed})")


@rule
def pickles(case: Subject) -> None:
    """A pickled environment continues from the same state."""
    case.deterministic()
    env = case.make()
    if not case.forkable(env):
        raise Skip("it does not claim to be forkable")
    for seed in case.seeds:
        env.reset(seed=seed)
        twin = pickle.loads(pickle.dumps(env))
        case.opened.callback(twin.close)
        _same(
            future(env, case.turns),
            future(twin, case.turns),
            f"seed {seed}, pickled",
            "define __getstate__ and __setstate__ for what does not pickle, such as clients and data sets",
        )


@rule
def threads(case: Subject) -> None:
    """Instances in several threads give the same transcripts as alone."""
    case.deterministic()
    if case.claims and not case.claims.thread_safe:
        raise Skip("it does not claim to be thread-safe")
    alone = [transcript(case.make(), seed, case.turns) for seed in case.seeds]
    together: dict[int, Transcript | BaseException] = {}

    def play(env: Env, seed: int) -> None:
        try:
            together[seed] = transcript(env, seed, case.turns)
        except BaseException as error:
            together[seed] = error

    # daemons: a call that never returns must not keep the process from its end
    players = [threading.Thread(target=play, args=(case.make(), seed), daemon=True) for seed in case.seeds]
    for player in players:
        player.start()
    if case.deadline is not None:
        case.deadline.threads = [player.ident for player in players if player.ident is not None]
    for player in players:
        player.join()
    for seed, one in zip(case.seeds, alone, strict=True):
        other = together[seed]
        if isinstance(other, BaseException):
            raise other
        _same(one, other, f"seed {seed} in a thread", "state thread_safe=False in the spec, or share nothing")


def _stated_turns(case: Subject, env: Env) -> int | None:
    """Return the turn budget of the spec or, where that has none, of the environment; None for no budget."""
    if case.claims and case.claims.max_turns:
        return case.claims.max_turns
    own = getattr(env, "max_turns", None) if env.unwrapped is env else None  # a wrapper may add turns
    return own if type(own) is int and own > 0 else None


@rule
def ends(case: Subject) -> None:
    """Random play ends the episode within the turns that the task states, by termination."""
    env = case.make()
    stated = _stated_turns(case, env)
    for seed in case.seeds:
        env.reset(seed=seed)
        for _ in range(stated or _PLAY_CAP):
            step = env.step(act(env))
            if step.done:
                break
        else:
            if stated is None:
                raise Skip(f"it states no budget, and seed {seed} did not end in {_PLAY_CAP} turns")
            raise Broken(
                f"seed {seed} went on after the {stated} turns that it states",
                "end the episode when the turns are used up, or state the true max_turns",
            )
        cut = any(step.truncations.values()) if isinstance(step, MultiStep) else step.truncated
        if cut and case.claims:
            raise Broken(
                f"seed {seed} ended in a truncation",
                "a task's own end is a termination; truncation is for limits from outside",
            )


@rule
def solver(case: Subject) -> None:
    """solve() does what is claimed: wins every episode in full, or the stated share, or raises NoSolver.

    Without a claim it has to play by the rules.
    """
    if case.claims is None:
        if not _plays_by_the_rules(case, case.make(), "solve"):
            raise Skip("it has no solver")
        return
    claim = case.claims.solver
    env = case.make()
    if isinstance(env, SeatedEnv):
        if claim == "none" and _has_no_solver(env, case.seeds[0]):
            return
        for seed in case.seeds:  # against one another not all can win; that they play is what can be asked
            for entry in transcript(env, seed, case.turns, lambda env: env.solve())[1:]:
                if any(info.get("legal") is False for info in entry[5].values()):
                    raise Broken(f"seed {seed}: {entry[0]} was refused", "mend expert_action()")
        return
    if claim == "none":
        env.reset(seed=case.seeds[0])
        _raises(errors.NoSolver, env.solve, "solve()", "state the solver in the spec, or drop solve()")
        return
    change = f"mend solve(), or claim another solver than {claim!r}"
    seeds = case.seeds
    if claim == "measured":
        episodes = max(20, min(100, MEASURED_TURNS // (case.claims.max_turns or 1)))
        seeds = tuple(range(max(episodes, len(case.seeds))))
    won = 0
    for seed in seeds:
        steps = transcript(env, seed, case.claims.max_turns or _PLAY_CAP, lambda env: env.solve())[1:]
        earned = math.fsum(entry[2] for entry in steps)
        success = steps[-1][5].get("success") is True
        full = success and abs(earned - FULL_REWARD) < 1e-6
        won += success if claim == "measured" else full  # a foreign world pays as it likes
        if claim != "measured" and not full:
            raise Broken(f"seed {seed}: it earned {earned:g}, success {steps[-1][5].get('success')}", change)
    if claim == "measured" and case.claims.solver_rate is not None:
        rate, n = case.claims.solver_rate, len(seeds)
        spread = 4 * math.sqrt(max(rate * (1 - rate), 1 / n) / n)
        if abs(won / n - rate) > spread:
            raise Broken(f"it won {won} of {n}; the spec states {rate:g}", change)


def _has_no_solver(env: Any, seed: int) -> bool:
    env.reset(seed=seed)
    try:
        env.solve()
    except errors.NoSolver:
        return True
    return False


@rule
def hostile_actions(case: Subject) -> None:
    """Any text is handled as an answer: hostile texts, and mutations of a right one, raise no error."""
    env = case.make()
    start = env.reset(seed=case.seeds[0])
    state = env.get_state() if case.forkable(env) else None
    ordinary = {
        f"the ordinary mistake {action!r:.60}": action for action in _ordinary_mistakes(env, start[0])
    }
    rng = stream(case.seeds[0], "mutations")
    mutated = {f"the mutation {a!r:.60}": a for a in mutate(right_text(env), rng, _MUTATIONS)}
    for what, action in {**HOSTILE, **ordinary, **mutated}.items():
        if state is None:
            env.reset(seed=case.seeds[0])
        else:
            env.set_state(state)
        try:
            step = env.step(everybody(env, action))
        except Exception as error:
            failure = f"{what}: {type(error).__name__} was raised: {str(error)[:200]}"
            raise Broken(failure, f"treat it as an unreadable answer {where(error)}") from error
        _check_step(step, what)


def mutate(text: str, rng: random.Random, count: int) -> list[str]:
    """Return `count` texts near to one: pieces of it removed, repeated, moved, or hostile ones put in."""
    texts: list[str] = []
    while len(texts) < count:
        mutated = text
        for _ in range(rng.choice((1, 1, 2, 4))):
            i, k = sorted(rng.randrange(len(mutated) + 1) for _ in range(2))
            before, inside, behind = mutated[:i], mutated[i:k], mutated[k:]
            mutated = rng.choice(
                (
                    before + behind,
                    before + inside * rng.choice((2, 50)) + behind,
                    behind + inside + before,
                    before + rng.choice(_PIECES) + inside + behind,
                    before + rng.choice(_PIECES) + behind,
                    before + inside.swapcase() + behind,
                )
            )
        texts += [mutated[:_LONGEST]] * (mutated != text)
    return texts


_LONGEST = 100_000  # characters of a mutation


def right_text(env: Env) -> str:
    """Return what the solver says in this state, a legal action without one; of seats that of one."""
    try:
        action: Any = env.solve()
    except errors.NoSolver:
        action = act(env)
    return str(next(iter(action.values())) if isinstance(action, dict) else action)


def _ordinary_mistakes(env: Env, obs: Any) -> list[str]:
    """Return what a careless agent says: numbers out of range and other words, in the form of a legal action.

    The range is that of the numbers in the observation and in the legal action. If the latter has none, a
    number is tried in a box and alone.
    """
    legal: Any = act(env)
    if isinstance(legal, dict):
        seat, legal = next(iter(legal.items()))
        obs = obs.get(seat, "")
    numbers = [int(number) for number in re.findall(r"\d{1,9}", f"{text_of(obs)} {legal}")]
    most = max(numbers, default=9)
    values = ["-1", "0", str(most + 1), str(100 * (most + 1))]
    if re.search(r"\d", legal) and _has_actor(env):
        actions = [re.sub(r"-?\d+", value, legal) for value in values]
    else:
        actions = [form for value in values for form in (f"\\boxed{{{value}}}", value)]
    before, inside, behind = legal.rpartition("{") if legal.endswith("}") else ("", "", legal)
    return [*actions, before + inside + re.sub(r"[^\W_]+", "zebra", behind)]


def _has_actor(env: Env) -> bool:
    try:
        env.sample_random_action()
    except errors.NoSolver:
        return False
    return True


@rule
def text_only(case: Subject) -> None:
    """An action that is not text is refused with BadAction."""
    env = case.make()
    for action in (None, 7, b"7", ["7"]):
        env.reset(seed=case.seeds[0])
        _raises(
            errors.BadAction,
            functools.partial(env.step, everybody(env, cast(str, action))),
            f"the action {action!r}",
            "leave type checks to gem.Env: do not replace its guard",
        )


@rule
def seats(case: Subject) -> None:
    """With several seats, the spec names them, and step() takes actions exactly from the seats to move."""
    env = case.make()
    if not isinstance(env, SeatedEnv):
        if case.claims and len(case.claims.seats) > 1:
            raise Broken(f"its spec names {case.claims.seats}", "seats are a SeatedEnv's; subclass it")
        return
    if case.claims and set(case.claims.seats) != set(env.seats):
        raise Broken(
            f"its spec names {case.claims.seats}, seats are {env.seats}",
            "state the seats in the spec",
        )
    change = "leave the check of whose turn it is to SeatedEnv"
    for seed in case.seeds:
        env.reset(seed=seed)
        right = act(env)
        first = next(iter(right))
        wrong: tuple[Any, ...] = (
            {},
            {**right, "nobody": right[first]},
            {"nobody": right[first]},
            right[first],
        )
        tries = {f"the actions {str(actions)[:80]}": actions for actions in wrong}
        tries |= {f"{seat}'s turn": {seat: right[first]} for seat in env.seats if seat not in env.acting}
        for what, actions in tries.items():
            _raises(errors.BadAction, functools.partial(env.step, cast(Any, actions)), what, change)


def _tools_by_seat(env: Env) -> dict[str, Sequence[ToolSpec]]:
    """Return the tools that an environment declares; skip where there are none."""
    by_seat = env.seat_tools if isinstance(env, SeatedEnv) else {SEAT: env.tool_specs}
    declared = {seat: tools for seat, tools in by_seat.items() if tools}
    if not declared:
        raise Skip("it declares no tools")
    return declared


@rule
def tools_declared(case: Subject) -> None:
    """Declared tools have unique names, descriptions and object schemas, and are in the info of reset()."""
    env = case.make()
    start: Any = env.reset(seed=case.seeds[0])
    for seat, tools in _tools_by_seat(env).items():
        change = "declare tool_specs as ToolSpec(name, description, schema of the arguments)"
        for tool in tools:
            if not isinstance(tool, ToolSpec) or not tool.name or not tool.description.strip():
                raise Broken(f"a tool is {tool!r:.100}", change)
            properties = tool.schema.get("properties", {}) if isinstance(tool.schema, Mapping) else None
            if not isinstance(properties, Mapping) or tool.schema.get("type") != "object":
                raise Broken(f"the schema of {tool.name} is {tool.schema!r:.100}", f"{change}, an object's")
        names = [tool.name for tool in tools]
        if len(set(names)) < len(names):
            raise Broken(f"the tools are {names}", "give each tool a name of its own")
        info = start[1][seat] if isinstance(env, SeatedEnv) else start[1]
        if info.get("tools") != written_tools(tools):
            raise Broken(
                f"info['tools'] of reset is {info.get('tools')!r:.150}; declared are {names}",
                "leave info['tools'] to gem.Env; a wrapper that adds tools sets it in on_start()",
            )


@rule
def tools_reachable(case: Subject) -> None:
    """A call of a declared tool, in ``<tool_call>`` tags, is not answered like one of an unknown tool."""
    env = case.make()
    env.reset(seed=case.seeds[0])
    nobody = "no_such_tool_0"
    for seat, tools in _tools_by_seat(env).items():
        control = _call_tool(case, env, seat, nobody, {})
        for tool in tools:
            answer = _call_tool(case, env, seat, tool.name, make_arguments(tool.schema))
            refused = answer[3].get("legal") is False
            refused = refused or answer[3].get("stop") == StopReason.UNREADABLE.value
            answers = [text_of(obs).replace(tool.name, nobody) for obs in (answer[0], control[0])]
            if refused or (answers[0] == answers[1] and not answer[2]):
                raise Broken(
                    f"{tool.name} was called, and the answer was {text_of(answer[0])[:150]!r}",
                    "read calls with gem.tools.calls.find, and carry out every tool that is declared",
                )


def _call_tool(
    case: Subject, env: Env, seat: str, name: str, arguments: Mapping[str, Any]
) -> tuple[Any, float, bool, Mapping[str, Any]]:
    """Call a tool in a new episode; return the observation, the reward, whether it is over, and the info."""
    action = write_call(name, arguments)
    env.reset(seed=case.seeds[0])
    if not isinstance(env, SeatedEnv):
        step = env.step(action)
        return step[0], step[1], step[2] or step[3], step[4]
    for _ in range(case.turns):
        if not env.acting:  # random play of another seat has ended the episode
            env.reset()
        if seat in env.acting:
            moved = env.step({**act(env), seat: action})
            over = moved.terminations[seat] or moved.truncations[seat]
            return moved.obs.get(seat, ""), moved.rewards[seat], over, moved.infos[seat]
        env.step(act(env))
    raise Skip(f"{seat}, which has tools, did not act within {case.turns} turns of random play")


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return an action that calls a tool."""
    return calls.write("", (ToolCall("c", name, json.dumps(dict(arguments))),))


def make_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that fit a tool's schema: those that are required, and no others."""
    properties = schema.get("properties", {})
    return {name: _value_for(properties.get(name)) for name in schema.get("required", ())}


_VALUES: dict[str, Any] = {
    "string": "1",
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


def _value_for(rule: Any) -> Any:
    rule = rule if isinstance(rule, Mapping) else {}
    for key in ("enum", "examples"):
        if isinstance(rule.get(key), list) and rule[key]:
            return rule[key][0]
    if "default" in rule or "const" in rule:
        return rule.get("const", rule.get("default"))
    choices = rule.get("anyOf")
    if isinstance(choices, list) and choices:
        return _value_for(choices[0])
    kinds = rule.get("type")
    kind = kinds[0] if isinstance(kinds, list) and kinds else kinds
    if kind in ("integer", "number"):
        least = rule.get("minimum", 1)
        return max(least, 1) if isinstance(least, int | float) else 1
    return _VALUES.get(kind, "1") if isinstance(kind, str) else "1"


@rule
def unknown_keywords(case: Subject) -> None:
    """Undeclared keywords are refused by the constructor and by reset()."""
    change = "declare the keywords that are taken; do not swallow **kwargs"
    if case.claims is not None:
        made = case.claims
        _raises(
            errors.UnknownArgument,
            lambda: registry.make(made, no_such_keyword=1).close(),
            "making it with no_such_keyword=1",
            change,
        )
    call: Any = case.make().reset
    _raises(errors.UnknownArgument, lambda: call(no_such_option=1), "reset(no_such_option=1)", change)


@rule
def bad_seeds(case: Subject) -> None:
    """A seed that is not a non-negative integer is refused with BadArgument."""
    env = case.make()
    for seed in (-1, 1.5, "1"):
        _raises(
            errors.BadArgument,
            functools.partial(env.reset, cast(int, seed)),
            f"reset(seed={seed!r})",
            "begin reset with super().reset(seed=seed)",
        )


@rule
def order_of_calls(case: Subject) -> None:
    """step() before reset, after the end and after close, and reset after close, raise what they should."""
    env = case.make()
    change = "leave the order of calls to gem.Env: begin reset with super().reset(seed=seed)"
    _raises(errors.ResetNeeded, lambda: env.step("1"), "step() before reset()", change)
    env.reset(seed=case.seeds[0])
    for _ in range(_PLAY_CAP):
        if env.step(act(env)).done:
            _raises(errors.EpisodeOver, lambda: env.step("1"), "step() after the end", change)
            break
    env.close()
    _raises(errors.EnvClosed, lambda: env.step("1"), "step() after close()", change)
    _raises(errors.EnvClosed, env.reset, "reset() after close()", change)


@rule
def close_twice(case: Subject) -> None:
    """close() twice is harmless, before reset and after."""
    for begun in (False, True):
        env = case.make()
        if begun:
            env.reset(seed=case.seeds[0])
        env.close()
        env.close()


@rule
def hash_seed(case: Subject) -> None:
    """The transcript does not depend on the interpreter's hash seed."""
    if not case.hash_seed:
        raise Skip("slow; asked for with hash_seed=True")
    case.deterministic()
    claims = _elsewhere(case)
    if hash_seed_dependent([claims], case.seeds, case.turns):
        raise Broken(
            "two processes with different hash seeds gave different transcripts",
            "sort sets before drawing from them or printing them",
        )


@rule
def same_on_every_host(case: Subject) -> None:
    """The serial, thread and process hosts give the same transcript."""
    if not case.hosts:
        raise Skip("slow; asked for with hosts=True")
    case.deterministic()
    claims = _elsewhere(case)
    env = case.make()
    env.reset(seed=case.seeds[0])
    agent = None if _has_actor(env) else ScriptedAgent([PLAIN_ACTION] * case.turns)
    if host_dependent([claims], case.seeds, case.turns, agent):
        raise Broken(
            "the thread or the process host gave another transcript than the serial one",
            "let an episode follow from its seed alone: no process ids, no clocks, no module state",
        )
