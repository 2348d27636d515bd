"""Doubts: signs in the answers of a run that its figures are the server's doing, and not the model's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gem.agents.outcomes import NO_END
from gem.evals.usage import model_of
from gem.record import Episode, StopReason, Turn
from gem.rollout.episode import is_left

WORDLESS = "ended before the model wrote a word"
ENDLESS = "have an answer without a finish reason"
MODELS = "have an answer of another model"
SAME_IDS = "have answers that all bear one id"
CUT = "have an answer that the token limit cut"
UNASKED = "have a program that got no answer of its model"
LEFT = "have a program that ended before its episode"
SILENT = "were cut off, and none says whether it was solved"

CUT_SHARE = 0.03
"""The share of turns whose answers the token limit cut from which on it is a doubt."""

CONSEQUENCES = {
    WORDLESS: "they count as lost; look at the server's context, template and token limit",
    ENDLESS: "answers may be cut, and were scored as they came",
    MODELS: "the figures are of several models",
    SAME_IDS: "they may be one answer from a cache, and no independent samples",
    UNASKED: "they are scored as it left them; its model is at OPENAI_BASE_URL, and `gem-gym show` has the "
    "end of its output",
    LEFT: "they are scored as it left them; a program acts by the tools at {mcp_url}, and what it prints is "
    "its answer only in environments of one turn, with --program-prints",
    SILENT: "they count as not solved; allow more turns, or let the environment put success into info, or "
    "stop 'ended' where there is no such thing",
    CUT: "they were scored as they came; raise max_tokens, or the server's own limit",
}
"""What each doubt means for the figures."""

CRASHED = "have a program that ended with"
CRASHES_COUNT = "they count as lost; `gem-gym show` has the end of a program's output"
LONGEST_LINE = 120
"""The most characters of a program's output in a doubt."""


def find_doubts(episodes: Sequence[Episode]) -> dict[str, set[int]]:
    """Return the places of doubtful episodes among the scored ones, by doubt.

    That an episode ended before the model wrote a word, or a program before its episode, is a doubt if most
    of them did, that an answer was cut if `CUT_SHARE` of all turns were. Agents without a model give no
    doubts, but for programs that fail or leave, and what the environment does not say.
    """
    crashes = find_crashes(episodes)
    crashed = set[int]().union(*crashes.values())
    left = _find_left(episodes, crashed)
    explained = left | crashed
    doubts: dict[str, set[int]] = defaultdict(set, {LEFT: left})
    models: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    ids: dict[str, set[int]] = defaultdict(set)
    scored = played = cut = 0
    for place, episode in enumerate(episodes):
        turns = [turn for turn in episode.turns if model_of(episode.run, turn) is not None]
        models_play = episode.run.model is not None or any(seat.model for seat in episode.run.seats.values())
        if not episode.scored or not (turns if episode.turns else models_play):
            continue
        scored += 1
        if all(map(_is_wordless, turns)) and place not in explained:
            doubts[WORDLESS if turns or not _programs_of(episode) else UNASKED].add(place)
        played += len(turns)
        if own_cut := _count_cut(episode):
            cut += own_cut
            doubts[CUT].add(place)
        for turn in turns:
            extra = turn.extra or {}
            if extra.get("finish_reason") == NO_END:
                doubts[ENDLESS].add(place)
            if isinstance(model := extra.get("model"), str):
                models[str(model_of(episode.run, turn))][model].add(place)
            if isinstance(own := extra.get("id"), str):
                ids[own].add(place)
    for doubt in (WORDLESS, UNASKED):
        if 2 * len(doubts[doubt]) <= scored:
            del doubts[doubt]
    if cut < CUT_SHARE * played:
        doubts.pop(CUT, None)
    for places in models.values():
        usual = max(places, key=lambda model: len(places[model]))
        doubts[MODELS].update(*(places[model] for model in places if model != usual))
    if len(ids) == 1 and len(*ids.values()) > 1:
        doubts[SAME_IDS].update(*ids.values())
    doubts[SILENT] = _find_silent(episodes)
    return {doubt: places for doubt, places in (doubts | crashes).items() if places}


def _find_silent(episodes: Sequence[Episode]) -> set[int]:
    """Return the places of episodes that were truncated, if all were and none reports a success.

    Where one ended by itself without a word of success, none is counted (`gem.evals.results`).
    """
    ends = {place: each for place, each in enumerate(episodes) if each.scored}
    if any(each.stop is not StopReason.TURN_LIMIT for each in ends.values()):
        return set()
    return {
        place
        for place, each in ends.items()
        if each.truncated
        for end in each.ends.values()
        if "stop" not in end.info and _SUCCESS.isdisjoint(end.info)
    }


_SUCCESS = frozenset({"success", "correct"})


def _programs_of(episode: Episode) -> list[Mapping[str, Any]]:
    """Return what is known of the end of an episode's program; empty for other agents."""
    about = [end.info.get("program") for end in episode.ends.values()]
    return [each for each in about if isinstance(each, Mapping)]


def _find_left(episodes: Sequence[Episode], crashed: set[int]) -> set[int]:
    """Return the places of episodes that a program left without a crash, if most programs did."""
    played = {place: each for place, each in enumerate(episodes) if each.scored and _programs_of(each)}
    left = {place for place, each in played.items() if is_left(each)} - crashed
    return left if 2 * len(left) > len(played) else set()


def find_crashes(episodes: Sequence[Episode]) -> dict[str, set[int]]:
    """Return the places of scored episodes that an agent program lost by its own end, by doubt.

    The programs ended with an exit code other than 0, or by a signal, and were not ended for their limits.
    """
    lines: dict[str, Counter[str]] = defaultdict(Counter)
    places: dict[str, set[int]] = defaultdict(set)
    for place, episode in enumerate(episodes):
        for about in _programs_of(episode):
            if not episode.scored or about.get("ended"):
                continue
            code, signal = about.get("exit_code"), about.get("signal")
            if (code or signal) and episode.stop not in _NO_CRASH:
                how = f"signal {signal}" if signal else f"exit code {code}"
                places[how].add(place)
                lines[how][(str(about.get("stderr") or "").strip().splitlines() or [""])[-1]] += 1
    return {f"{CRASHED} {how}{_quote_usual(lines[how])}": each for how, each in places.items()}


_NO_CRASH = (StopReason.SOLVED, StopReason.TURN_LIMIT, StopReason.TOKEN_LIMIT)
"""How an episode stops whose program may end with an error: it solved it, or got no further answer."""


def _quote_usual(lines: Counter[str]) -> str:
    """Return the most frequent line in quotes, or nothing: whoever wrote it, the model or the program."""
    line = lines.most_common(1)[0][0][:LONGEST_LINE]
    return f" ({line!r})" if line else ""


def count_doubts(episodes: Sequence[Episode]) -> tuple[dict[str, int], int]:
    """Return the number of doubtful episodes by doubt, and in all."""
    doubts = find_doubts(episodes)
    return {doubt: len(places) for doubt, places in doubts.items()}, len(set().union(*doubts.values()))


def count_cut(episodes: Iterable[Episode]) -> int:
    """Return the number of turns of scored episodes whose answer the token limit of one answer cut."""
    return sum(_count_cut(episode) for episode in episodes if episode.scored)


def _count_cut(episode: Episode) -> int:
    """Return the number of cut answers, without the one that the limit of the whole episode ended."""
    cut = [turn.finish == "length" for turn in episode.turns if model_of(episode.run, turn) is not None]
    return sum(cut) - (episode.stop is StopReason.TOKEN_LIMIT and cut[-1:] == [True])


def describe_doubts(doubts: Mapping[str, int], scored: int) -> list[str]:
    """Return a sentence for each doubt, with its count and what it means for the figures."""
    return [
        f"{count} of {scored} episodes {doubt}: {CONSEQUENCES.get(doubt, CRASHES_COUNT)}"
        for doubt, count in doubts.items()
    ]


def _is_wordless(turn: Turn) -> bool:
    answer = turn.said
    return not (answer.text.strip() or answer.tool_calls or answer.reasoning)
