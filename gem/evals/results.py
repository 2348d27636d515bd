"""The figures of played episodes: success, return, turns, and the share of episodes with a verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from gem.errors import NoVerdict, check_argument
from gem.evals.doubts import count_cut, count_doubts
from gem.evals.usage import Usage, count_judged, count_uncounted, spent_on, tokens_of
from gem.record import AgentInfo, Episode, RunInfo, StopReason
from gem.rollout.store import env_key
from gem.statistics import (
    Interval,
    exact,
    mean_interval,
    pass_at_k,
    pass_hat_k,
    rate_interval,
    ratio_interval,
    return_interval,
)


@dataclass(frozen=True, slots=True)
class SeatResult:
    """The figures of one seat of a game, as in EnvResult; `turns` counts only this seat's turns."""

    success: Interval | None
    reward: Interval
    turns: float


@dataclass(frozen=True, slots=True)
class EnvResult:
    """An agent's figures on one environment.

    `episodes` is the number of requested jobs, each counted once. `scored` of them have a verdict,
    `cancelled` were cancelled, and infrastructure broke the others. Episodes without verdict are left out of
    all figures except three, which show their possible effect: `no_verdict` is their rate, `at_least` the
    rate of success if all of them, and all `unplayed` jobs, are counted as lost, `at_most` if all are counted
    as won. The true rate is between these two.

    `success` is None if the environment does not report success. If it does in some episodes only, `unclear`
    of the scored ones do not say whether they succeeded: `success` is of the others, and both bounds count
    them as episodes without verdict.
    `turns_to_success`: turns until success, where a lost episode counts as one turn more than its limit; None
    where one was lost and the limit is unknown.
    `errors` counts the failures by boundary and type; `first_error` is the message of the first one. `seats`
    has the figures of each seat of a multi-agent environment. If one `seat` is measured, success, reward and
    turns are of this seat; else `reward` is the mean over the seats. `constant_return`: that mean is the same
    in every episode, as where one seat wins what the others lose; play_suite() then gives none. `agent` is
    the name of the agent, from the episodes.

    `unplayed` jobs were not started, because the budget was used up; the figures are from the others, and the
    coverage shows it. If each task has several `samples`, `passes` has ``pass@1`` to ``pass@k`` (one of k
    samples succeeds) and ``pass^1`` to ``pass^k`` (all succeed); the figures of k are over the tasks with at
    least k verdicts, which are the `clusters` of their intervals, of all `tasks` (0 with one sample each).
    `usage` is the token usage of the episodes, by model; in a suite, with that of earlier attempts
    at them that have no verdict. `tokens_per_success` and
    `seconds_per_success` are the tokens and the seconds of all episodes with a verdict for each that
    succeeded: what the agent and the calls of the environment took, by the clock; None if none
    succeeded, and of tokens if not all are known. `judged` is the number of tokens that judges used for the
    same episodes; they are in none of the other figures.

    `parts` has the mean of each named part of the reward, such as a rubric's scores, summed over the turns of
    an episode, over the episodes that have it. `gaps` says where a part is missing: in how many episodes
    with a verdict, and why in the first.

    `groups` has the figures of each group of tasks that was asked for, as ``level=3``; a task may be in
    several.

    `doubtful` episodes have a sign that the server made their outcome, and not the model; `doubts` counts
    them by sign (`gem.evals.doubts`). `cut` is the number of turns, of episodes with a verdict, whose
    answer the token limit cut.
    """

    env: str
    episodes: int
    scored: int
    success: Interval | None
    at_least: float | None
    reward: Interval | None
    turns: float | None
    turns_to_success: Interval | None = None
    cancelled: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    first_error: str | None = None
    seats: dict[str, SeatResult] = field(default_factory=dict)
    at_most: float | None = None
    no_verdict: Interval | None = None
    agent: str = ""
    unplayed: int = 0
    samples: int = 1
    passes: dict[str, Interval] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)
    doubts: dict[str, int] = field(default_factory=dict)
    doubtful: int = 0
    cut: int = 0
    parts: dict[str, Interval] = field(default_factory=dict)
    gaps: dict[str, str] = field(default_factory=dict)
    tokens_per_success: Interval | None = None
    seconds_per_success: Interval | None = field(default=None, compare=False)
    judged: int = 0
    unclear: int = 0
    tasks: int = 0
    seat: str = ""
    constant_return: bool = False
    groups: dict[str, EnvResult] = field(default_factory=dict)

    @property
    def coverage(self) -> float:
        """The share of requested jobs that have a verdict; NaN if there were none."""
        return self.scored / self.episodes if self.episodes else float("nan")

    @property
    def played(self) -> int:
        """The number of jobs that were played."""
        return self.episodes - self.unplayed

    @property
    def unscored(self) -> int:
        """The number of jobs that were played and have no verdict."""
        return self.played - self.scored

    @property
    def boundaries(self) -> dict[str, int]:
        """The numbers of episodes without verdict by cause: env, host, agent, driver, or cancelled."""
        counts: Counter[str] = Counter()
        for what, count in self.errors.items():
            counts[what.partition(":")[0]] += count
        return {**counts, "cancelled": self.cancelled} if self.cancelled else dict(counts)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; an infinite or NaN bound becomes None."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in INTERVALS:
            plain[name] = bounds(plain[name])
        seats = {
            name: {"success": bounds(seat.success), "reward": bounds(seat.reward), "turns": seat.turns}
            for name, seat in self.seats.items()
        }
        for name in ("passes", "parts"):
            plain[name] = {key: bounds(each) for key, each in plain[name].items()}
        plain["usage"] = {model: asdict(usage) for model, usage in self.usage.items()}
        plain["groups"] = {name: group.to_json() for name, group in self.groups.items()}
        coverage = self.coverage if self.episodes else None
        return {**plain, "seats": seats, "coverage": coverage, "boundaries": self.boundaries}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> EnvResult:
        """Restore a result from to_json(); fields that an earlier version did not write get their default."""
        plain = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        for name in INTERVALS:
            plain[name] = _interval(plain.get(name))
        seats = {
            name: SeatResult(_interval(seat["success"]), _or_nan(_interval(seat["reward"])), seat["turns"])
            for name, seat in values["seats"].items()
        }
        for name in ("passes", "parts"):
            plain[name] = {key: _or_nan(_interval(each)) for key, each in plain.get(name, {}).items()}
        plain["usage"] = {model: Usage(**usage) for model, usage in plain.get("usage", {}).items()}
        plain["groups"] = {name: cls.from_json(group) for name, group in plain.get("groups", {}).items()}
        return cls(**{**plain, "seats": seats})


INTERVALS = (
    *("success", "reward", "turns_to_success", "no_verdict"),
    *("tokens_per_success", "seconds_per_success"),
)
"""The fields of an EnvResult that are intervals."""


def bounds(interval: Interval | None) -> dict[str, Any] | None:
    """Return an interval as JSON values; an infinite or NaN bound becomes None."""
    if interval is None:
        return None
    plain = interval._asdict()
    return {name: value if math.isfinite(value) else None for name, value in plain.items()}


def _interval(values: Mapping[str, Any] | None) -> Interval | None:
    if values is None:
        return None
    mean, low, high = (values[name] for name in ("mean", "low", "high"))
    return Interval(
        math.nan if mean is None else mean,
        -math.inf if low is None else low,
        math.inf if high is None else high,
        values["n"],
        values["clusters"],
        values.get("exact", False),
    )


def _or_nan(interval: Interval | None) -> Interval:
    return interval or Interval(math.nan, math.nan, math.nan, 0, 0)


def summarise(
    name: str,
    episodes: Sequence[Episode],
    *,
    clustered: bool = False,
    exactly: bool = False,
    budget: int | None = None,
    unplayed: int = 0,
    samples: int = 1,
    seat: str | None = None,
) -> EnvResult:
    """Return the figures of played episodes, one per requested job.

    `clustered`: episodes of one `group` are samples of one task or instance, and not independent. For
    `exactly`, `budget` and `samples` see evaluate; if an episode has no verdict, nothing is exact.
    `unplayed`: the number of requested jobs that were not played. `seat`: the seat whose success, reward and
    turns are measured; None: all of them together.

    Raises:
        BadArgument: for a seat that an episode does not have.
    """
    scored = [episode for episode in episodes if episode.scored]
    if seat is not None:
        for episode in scored:
            check_argument("seat", seat, seat in episode.ends, f"one of {name}: {', '.join(episode.ends)}")
    exactly = exactly and not unplayed and len(scored) == len(episodes)
    with_success, won = _find_reporting(scored, seat)
    earned = [episode.reward(seat) for episode in scored]
    broken = [episode.error for episode in episodes if episode.error is not None]
    known = bool(with_success) and (budget is not None or all(won))
    needed = [
        float(_count_turns(each, seat)) if solved else 1.0 + (budget or 0)
        for each, solved in zip(with_success, won, strict=True)
    ]

    def groups(of: Sequence[Episode]) -> list[str] | None:
        return [each.group for each in of] if clustered else None

    def mean(values: Sequence[float], of: Sequence[Episode]) -> Interval:
        return exact(values) if exactly else mean_interval(values, groups(of))

    def mean_return(values: Sequence[float], of: Sequence[Episode], seat: str | None = seat) -> Interval:
        successes = find_successes((each, seat) for each in of)
        return exact(values) if exactly else return_interval(values, groups(of), successes=successes)

    def rate(values: Sequence[float], of: Sequence[Episode]) -> Interval:
        return exact(values) if exactly else rate_interval(values, groups(of))

    def divide(amounts: Sequence[float]) -> Interval | None:
        """Return the amount for each success; None without one."""
        if not any(won):
            return None
        ratio = ratio_interval(amounts, won, groups(with_success))
        if exactly:
            return Interval(ratio.mean, ratio.mean, ratio.mean, ratio.n, ratio.n, exact=True)
        return ratio

    def summarise_seat(seat: str) -> SeatResult:
        with_success, won = _find_reporting(scored, seat)
        return SeatResult(
            success=rate(won, with_success) if with_success else None,
            reward=mean_return([each.reward(seat) for each in scored], scored, seat),
            turns=sum(len(each.turns_of(seat)) for each in scored) / len(scored),
        )

    own_turns = [each.turns if seat is None else each.turns_of(seat) for each in scored]
    paid = [[turn.rewards or {} for turn in turns] for turns in own_turns]

    def summarise_part(part: str) -> Interval:
        earned = [[parts[part] for parts in turns if part in parts] for turns in paid]
        known = [(math.fsum(values), each) for values, each in zip(earned, scored, strict=True) if values]
        return mean_return([value for value, _ in known], [each for _, each in known])

    parts = dict.fromkeys(part for turns in paid for each in turns for part in each)
    unclear = len(scored) - len(with_success) if with_success else 0
    unknown = len(episodes) - len(scored) + unplayed + unclear
    doubts, doubtful = count_doubts(episodes)
    spent = [spent_on([each], seat) for each in with_success]
    return EnvResult(
        env=name,
        episodes=len(episodes) + unplayed,
        scored=len(scored),
        success=rate(won, with_success) if with_success else None,
        at_least=sum(won) / (len(won) + unknown) if with_success else None,
        reward=mean_return(earned, scored) if scored else None,
        turns=sum(_count_turns(each, seat) for each in scored) / len(scored) if scored else None,
        turns_to_success=mean(needed, with_success) if known else None,
        cancelled=sum(episode.error is None and not episode.scored for episode in episodes),
        errors=dict(Counter(f"{error.boundary}: {error.type}" for error in broken)),
        first_error=broken[0].message if broken else None,
        seats={seat: summarise_seat(seat) for seat in _seats(scored)},
        at_most=(sum(won) + unknown) / (len(won) + unknown) if with_success else None,
        no_verdict=rate_interval([float(not each.scored) for each in episodes], groups(episodes))
        if episodes
        else None,
        agent=_agent(episodes),
        unplayed=unplayed,
        samples=samples,
        passes=_passes(with_success, won, samples),
        usage=spent_on(episodes),
        doubts=doubts,
        doubtful=doubtful,
        cut=count_cut(episodes),
        parts={part: summarise_part(part) for part in parts},
        gaps=_describe_gaps(scored),
        tokens_per_success=None if any(map(count_uncounted, spent)) else divide([*map(tokens_of, spent)]),
        seconds_per_success=divide([_seconds_of(each) for each in with_success]),
        judged=count_judged(episodes),
        unclear=unclear,
        tasks=-(-(len(episodes) + unplayed) // samples) if samples > 1 else 0,
        seat=seat or "",
        constant_return=_is_constant(earned, scored, seat),
    )


def reports_success(stops: Iterable[str], *, several: bool = False) -> bool:
    """Return whether an environment reports success, from how its episodes with a verdict ended.

    Where some end without a word of success, only a solved or a failed one shows that it does. Others were
    cut, or had an answer that nobody could read: to count them alone would make a rate of 0.

    Args:
        stops: the stop of each episode, or of its measured seat.
        several: they are stops of whole episodes with several seats. Where these end differently, success is
            defined only by seat.
    """
    stops = {*stops}
    if StopReason.ENDED not in stops:
        return True
    return not several and not stops.isdisjoint((StopReason.SOLVED, StopReason.FAILED))


@dataclass
class Ends:
    """How episodes of one environment, or their seats, ended; it takes them one by one."""

    stops: set[StopReason] = field(default_factory=set)
    several: bool = False

    def add(self, episode: Episode, seat: str | None = None) -> None:
        """Add an episode that has ended; one without verdict changes nothing."""
        if episode.scored:
            self.stops.add(episode.stop_of(seat))
            self.several |= seat is None and episode.several

    def report_success(self) -> bool:
        """Return whether the environment reports success (`reports_success`), as far as they show."""
        return reports_success(self.stops, several=self.several)


def find_successes(played: Iterable[tuple[Episode, str | None]]) -> list[bool | None]:
    """Return whether each episode of one environment, or its seat, succeeded.

    None without verdict or without a word of success, and everywhere if `reports_success` is false.
    """
    played, ends = list(played), Ends()
    for each, seat in played:
        ends.add(each, seat)
    reports = ends.report_success()
    return [each.succeeded(seat) if reports else None for each, seat in played]


def find_successes_by_env(episodes: Sequence[Episode]) -> list[bool | None]:
    """Return whether each episode succeeded, by find_successes() of all those of its environment."""
    by_key: dict[str, list[tuple[Episode, None]]] = {}
    for each in episodes:
        by_key.setdefault(env_key(each.task), []).append((each, None))
    successes = {key: iter(find_successes(own)) for key, own in by_key.items()}
    return [next(successes[env_key(each.task)]) for each in episodes]


def _find_reporting(scored: Sequence[Episode], seat: str | None) -> tuple[list[Episode], list[float]]:
    """Return the episodes that say whether they (or the seat) succeeded, and 1 for each that did, else 0."""
    successes = find_successes((each, seat) for each in scored)
    known = [(each, float(won)) for each, won in zip(scored, successes, strict=True) if won is not None]
    return [each for each, _ in known], [won for _, won in known]


def _count_turns(episode: Episode, seat: str | None) -> int:
    return len(episode.turns if seat is None else episode.turns_of(seat))


def _is_constant(earned: Sequence[float], scored: Sequence[Episode], seat: str | None) -> bool:
    """Return whether returns are means over seats that are the same in every episode: nobody's return."""
    several = seat is None and len(scored) > 1 and all(each.several for each in scored)
    return several and max(earned) - min(earned) < SAME and any(each.success is None for each in scored)


SAME = 1e-9
"""Mean returns over seats that differ by less are the same."""


def _describe_gaps(scored: Sequence[Episode]) -> dict[str, str]:
    """Return where parts are missing, by part, from what the turns say under ``no_verdict``."""
    gaps: dict[str, list[str]] = {}
    for episode in scored:
        for turn in episode.turns:
            missing = turn.info.get("no_verdict")
            for part, why in missing.items() if isinstance(missing, Mapping) else ():
                gaps.setdefault(part, []).append(f"in episode {episode.id}: {why}")
    return {part: f"in {len(whys)} of {len(scored)} episodes, first {whys[0]}" for part, whys in gaps.items()}


def _seconds_of(episode: Episode) -> float:
    """Return the seconds of an episode's agent and environment, without its waiting for others."""
    return math.fsum(episode.timing.get(name, 0.0) for name in ("reset_s", "policy_s", "env_s"))


def _passes(with_success: Sequence[Episode], won: Sequence[float], samples: int) -> dict[str, Interval]:
    """Return pass@1 to pass@k and pass^1 to pass^k, each over the tasks that have as many verdicts.

    To leave out each task that lost a sample would leave out hard ones, whose episodes are long, sooner.
    """
    if samples == 1:
        return {}
    tasks: dict[str, list[bool]] = {}
    for episode, solved in zip(with_success, won, strict=True):
        tasks.setdefault(episode.group, []).append(bool(solved))
    enough = {k: [own for own in tasks.values() if len(own) >= k] for k in range(1, samples + 1)}
    kinds = (("pass@", pass_at_k), ("pass^", pass_hat_k))
    return {f"{name}{k}": rate(whole, k) for name, rate in kinds for k, whole in enough.items() if whole}


def _agent(episodes: Sequence[Episode]) -> str:
    """Return the agent and its model as text, by seat if they differ."""
    names = dict.fromkeys(who(episode.run) for episode in episodes)
    return ", ".join(name for name in names if name)


def who(run: RunInfo) -> str:
    """Return the agent of a run and its model as text, by seat if they differ."""
    if run.seats:
        return " ".join(f"{seat}={_format_agent(info)}" for seat, info in run.seats.items())
    return _format_agent(run)


def _format_agent(info: RunInfo | AgentInfo) -> str:
    return f"{info.agent} {info.model}" if info.model else info.agent


def _seats(episodes: Sequence[Episode]) -> list[str]:
    return list(dict.fromkeys(seat for episode in episodes if episode.several for seat in episode.ends))


def success_rate(episodes: Iterable[Episode]) -> float:
    """Return the share of successes among an environment's episodes that report success or failure.

    NaN if it does not report success (`reports_success`).
    """
    return average_known(find_successes((each, None) for each in episodes))


def average_known(successes: Iterable[bool | None]) -> float:
    """Return the share of successes among those that are known; NaN if none is."""
    known = [each for each in successes if each is not None]
    return sum(known) / len(known) if known else math.nan


def required(result: EnvResult) -> EnvResult:
    """Return `result` if at least one episode has a verdict.

    Raises:
        NoVerdict: when no episode has a verdict.
    """
    if not result.scored:
        broke = ", ".join(f"{count} times {what}" for what, count in result.errors.items())
        why = f"{broke}; the first said: {result.first_error}" if broke else "all were cancelled."
        raise NoVerdict(f"none of {result.episodes} episodes of {result.env} has a verdict: {why}")
    return result
