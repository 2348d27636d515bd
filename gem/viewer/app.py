"""The web application of the viewer: its addresses, and the page of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from gem import registry
from gem.content import text_of
from gem.errors import BadArgument, GemError
from gem.evals.comparison import Comparison, compare
from gem.evals.outcomes import Metric, read_run
from gem.record import Episode, StopReason, Turn
from gem.rollout.index import Entry, matches
from gem.rollout.replay import first_difference
from gem.viewer import charts
from gem.viewer.conversation import (
    COLOURS,
    MOST_TURNS,
    advantages_of,
    conversation,
    entropies,
    findings_of,
    parts_of,
    plain_json,
    prompt_messages,
    raw_prompt,
)
from gem.viewer.formats import static, templates
from gem.viewer.guard import BODY_AT_MOST, Guard
from gem.viewer.notes import LABELS, Note, measure_agreement
from gem.viewer.search import find_tool_errors, search
from gem.viewer.sources import Source
from gem.viewer.stretches import Summary, same_start, short_actions, split_run, summary_of
from gem.viewer.vocabulary import vocabulary_of
from gem.viewer.watched import compare_checkpoints
from gem.viewer.whatif import AGENTS, SAMPLES, check_what_if, value_turns, what_if

PAGE = 100
LAST_PAGE = 1 << 40
"""No store has so many pages; SQLite counts to 2 ** 63."""
SHORT_LINE = 1 << 16
"""The most bytes of an episode's stored line for which a list shows its actions."""
ORDERS = ("number", "spec", "stop", "reward", "turns", "tokens", "calls")
"""Keys to sort episodes by."""
OUTCOMES: dict[str, dict[str, Any]] = {
    "solved": {"success": True},
    "not solved": {"success": False},
    "no verdict": {"verdict": "none"},
}
"""Outcomes to filter episodes by."""
TOOL_ERROR = "tool error"
OPPOSED = ((True, False), (False, True))
MARKS: dict[str, Callable[[Entry, Note], bool]] = {
    "noted": lambda entry, note: True,
    "flagged": lambda entry, note: note.flagged,
    "labelled": lambda entry, note: bool(note.label),
    "label and verdict differ": lambda entry, note: (LABELS[note.label], entry.success) in OPPOSED,
}
"""Marks of readers to filter episodes by."""
CHANGES: dict[Metric, dict[str, str]] = {
    "success": {"worse": "A won, B lost", "better": "B won, A lost"},
    "return": {"worse": "B is lower", "better": "B is higher"},
}
"""Ways in which two runs may differ on a task, by metric."""
LIMITS = ("turns", "tokens", "turn_tokens", "context", "policy_s")
"""Limits of an episode that its page shows."""
STATIC = {
    "app.css": "text/css",
    "app.js": "text/javascript",
    "charts.js": "text/javascript",
    "vendor/uplot/uPlot.iife.min.js": "text/javascript",
    "vendor/uplot/uPlot.min.css": "text/css",
}


class Viewer:
    """The web application for some sources; a server runs its `app`."""

    def __init__(self, sources: Sequence[Source], token: str) -> None:
        """Show `sources` to anyone who has the token."""
        self.sources = list(sources)
        self._compared: tuple[tuple[Any, ...], Comparison] | None = None
        self.base = f"/{token}"
        self.env = templates()
        self.app = Guard(
            Starlette(
                routes=[
                    Route("/", self.runs),
                    Route("/curves", self.curves),
                    Route("/run/{run:int}", self.run),
                    Route("/run/{run:int}/count", self.count),
                    Route("/run/{run:int}/episode/{number:int}", self.episode),
                    Route("/run/{run:int}/episode/{number:int}/prompt/{turn:int}", self.prompt),
                    Route("/run/{run:int}/episode/{number:int}/text/{turn:int}/{part}", self.text),
                    Route("/run/{run:int}/episode/{number:int}/whatif", self.what_if_form),
                    Route("/run/{run:int}/episode/{number:int}/whatif", self.what_if, methods=["POST"]),
                    Route("/run/{run:int}/episode/{number:int}/note", self.note, methods=["POST"]),
                    Route("/run/{run:int}/episode/{number:int}/values", self.values, methods=["POST"]),
                    Route("/run/{run:int}/through", self.first_to_last),
                    Route("/start", self.starts),
                    Route("/pair", self.pair),
                    Route("/against", self.against),
                    Route("/static/{name:path}", self.static),
                ],
                exception_handlers={HTTPException: self.refuse, GemError: self.refuse},
            ),
            token,
        )

    # -- pages

    def runs(self, request: Request) -> Response:
        """Show all runs: the curves of training runs, and the figures of every run."""
        chosen = request.query_params.getlist("run")
        costs = {source.number: source.costs() for source in self.sources}
        rows = [(source, source.by_env()) for source in self.sources]
        return self._page(
            "runs.html",
            sources=self.sources,
            rows=rows,
            calls=any(figures.calls for _, specs in rows for figures in specs.values()),
            tokens=any(figures.tokens for _, specs in rows for figures in specs.values()),
            costs=costs if any(costs.values()) else {},
            chosen=[source.number for source in self.sources if not chosen or str(source.number) in chosen],
            training=[source for source in self.sources if source.training],
            chart=charts.read_settings(request.query_params, self.sources),
            title="Runs",
        )

    def curves(self, request: Request) -> Response:
        """Return the data of the curves as JSON."""
        return JSONResponse(charts.curves(request.query_params, self.sources))

    def run(self, request: Request) -> Response:
        """Show one page of a run's episodes, sorted and filtered by the query of the address."""
        source = self._source(request)
        asked = request.query_params
        wanted, chosen = self._read_filters(source, asked)
        order = asked.get("order", "number")
        if order not in ORDERS:
            raise HTTPException(400, f"order is {order!r:.40}; accepted: {', '.join(ORDERS)}.")
        descending = asked.get("way", "down" if order == "number" else "up") == "down"
        at = min(_number(asked, "page", 0), LAST_PAGE)
        words, marked = asked.get("q", "").strip(), asked.get("marked", "")
        if marked not in ("", TOOL_ERROR, *MARKS):
            accepted = ", ".join((*MARKS, TOOL_ERROR))
            raise HTTPException(400, f"marked is {marked!r:.40}; accepted: {accepted}.")
        noted = source.read_notes()
        listed = [each for each, note in noted if marked in MARKS and MARKS[marked](each, note)]
        listed = [each for each in listed if matches(each, wanted)]
        search_page = None
        if words or marked == TOOL_ERROR:
            scan = partial(search, text=words) if words else find_tool_errors
            search_page = scan(source.store, start=_number(asked, "from", 0), count=PAGE, **wanted)
            entries: list[Entry] = [hit.entry for hit in search_page.hits]
            if marked in MARKS:
                hits = {entry.number for entry in entries}
                entries = [entry for entry in listed if entry.number in hits]
            total = len(entries)
        elif marked:
            total = len(listed)
            entries = listed[at * PAGE : (at + 1) * PAGE]
        else:
            entries, total = source.store.page(
                order=order, descending=descending, start=at * PAGE, count=PAGE, **wanted
            )
        kept = {name: value for name, value in asked.items() if name not in ("page", "from") and value}

        def link(**changed: Any) -> str:
            return "?" + urlencode({k: v for k, v in {**kept, **changed}.items() if v not in (None, "")})

        tallies, names = source.tally(), source.names()
        return self._page(
            "run.html",
            source=source,
            figures=source.figures(),
            costs=source.costs(),
            episode_count=len(source.store),
            specs=sorted({*names.values()}),
            names=names,
            stops=[stop for stop in StopReason if any(tally.stop == stop for tally in tallies)],
            outcomes=OUTCOMES,
            entries=entries,
            hits={hit.entry.number: hit for hit in search_page.hits} if search_page else {},
            search=search_page,
            words=words,
            marks=(*MARKS, TOOL_ERROR),
            marked=marked,
            agreement=measure_agreement((note.label, entry.success) for entry, note in noted),
            notes={entry.id: note for entry, note in noted},
            summaries={} if search_page else {each.number: summary_in_list(source, each) for each in entries},
            total=total,
            order=order,
            descending=descending,
            at=at,
            pages=max(1, -(-total // PAGE)),
            size=PAGE,
            chosen=chosen,
            link=link,
            kept=kept,
            chart=charts.read_settings(asked, [source]),
            title=source.title(),
        )

    def count(self, request: Request) -> Response:
        """Return the current number of episodes and iterations."""
        source = self._source(request)
        return JSONResponse({"episodes": len(source.store), "iterations": len(source.history)})

    def episode(self, request: Request) -> Response:
        """Show an episode as a conversation."""
        source, number, episode = self._find_episode(request)
        colour = request.query_params.get("colour", "logprob")
        first = _number(request.query_params, "at", 1) - 1
        if not 0 <= first <= max(0, len(episode.turns) - 1):
            raise HTTPException(404, f"There is no turn {first + 1}; the episode has {len(episode.turns)}.")
        return self._page(
            "episode.html",
            source=source,
            number=number,
            last=len(source.store) - 1,
            note=source.notes.of(episode.id),
            labels=LABELS,
            forkable=_can_fork(episode),
            players=_list_players(episode) if _can_value(episode) else {},
            samples=SAMPLES,
            **episode_page(source, episode, colour, first=first),
            title=f"episode {number}",
        )

    def pair(self, request: Request) -> Response:
        """Show two episodes side by side, from where they differ."""
        places = [_place(request.query_params.get(name, "")) for name in ("one", "other")]
        sides, episodes = [], []
        for place in places:
            source, number, episode = self._read_episode(*place)
            episodes.append(episode)
            sides.append(self._side(source, number, episode))
        (run, number), _ = places
        return self._compare_page(
            self.sources[run], number, episodes, sides, heading="Side by side", title="side by side"
        )

    def against(self, request: Request) -> Response:
        """Show two runs on the tasks that both played: the paired difference, and the pairs that differ."""
        asked = request.query_params
        a, b = (self._source_of(_number(asked, name, default)) for name, default in (("a", 0), ("b", 1)))
        metric, which, env = asked.get("metric") or "success", asked.get("which", ""), asked.get("env", "")
        if metric not in CHANGES:
            raise HTTPException(400, f"metric is {metric!r:.40}; accepted: {', '.join(CHANGES)}.")
        comparison = self._compare(a, b, metric)
        own = [change for change in comparison.changes if not env or change.env == env]
        kinds = {name: [c for c in own if (c.b < c.a) == (name == "worse")] for name in CHANGES["success"]}
        if which not in ("", *kinds):
            raise HTTPException(400, f"which is {which!r:.40}; accepted: {', '.join(kinds)}.")
        chosen = kinds.get(which, own)
        at = min(_number(asked, "page", 0), LAST_PAGE)
        kept = {name: value for name, value in asked.items() if name != "page" and value}
        rows = []
        for change in chosen[at * PAGE : (at + 1) * PAGE]:
            of_a = a.store.select(id=change.a_episode)[-1]
            of_b = b.store.select(id=change.b_episode)[-1]
            rows.append((change, of_a, of_b, summary_in_list(a, of_a), summary_in_list(b, of_b)))
        return self._page(
            "against.html",
            sources=self.sources,
            a=a,
            b=b,
            metric=metric,
            which=which,
            env=env,
            CHANGES=CHANGES,
            overall=comparison.overall,
            envs=comparison.rows,
            warnings=comparison.warnings,
            counts={name: len(changes) for name, changes in kinds.items()},
            changes=rows,
            total=len(chosen),
            at=at,
            pages=max(1, -(-len(chosen) // PAGE)),
            size=PAGE,
            link=lambda **changed: "?" + urlencode({**kept, **changed}),
            title="run against run",
        )

    def _compare(self, a: Source, b: Source, metric: Metric) -> Comparison:
        """Compare two runs; the last comparison is kept until a store grows, for its other pages."""
        states = [(each.number, each.store, len(each.store), each.store.superseded) for each in (a, b)]
        asked = (*states, metric)
        kept = self._compared
        if kept is None or kept[0] != asked:
            one, other = (read_run(source.path).outcomes for source in (a, b))
            kept = self._compared = asked, compare(one, other, metric=metric)
        return kept[1]

    def starts(self, request: Request) -> Response:
        """Show the episodes of an environment and seed in all runs."""
        spec = request.query_params.get("spec", "")
        seed = _number(request.query_params, "seed", 0)
        return self._page(
            "starts.html",
            spec=spec,
            seed=seed,
            starts=same_start(self.sources, spec, seed),
            title="One start",
        )

    def first_to_last(self, request: Request) -> Response:
        """Show how a run changed from its first episode to its last."""
        source = self._source(request)
        specs = list(source.by_env())
        spec = request.query_params.get("spec", "") or (specs[0] if specs else "")
        asked = request.query_params
        turn = max(1, _number(asked, "turn", 1)) - 1
        return self._page(
            "first_to_last.html",
            source=source,
            spec=spec,
            specs=specs,
            turn=turn,
            split=split_run(source, spec, turn),
            watched=compare_checkpoints(
                self.sources, source, _number(asked, "watched", 0) if "watched" in asked else None
            ),
            title="from first to last",
        )

    def what_if_form(self, request: Request) -> Response:
        """Show the form that asks for an action to replace a stored one."""
        source, number, episode = self._find_episode(request)
        check_what_if(episode)
        turn = _number(request.query_params, "turn", 0)
        return self._page(
            "whatif.html",
            source=source,
            number=number,
            observation=parts_of(_turn_of(episode, turn).observation),
            form=_what_if_form(episode, turn, [], True),
            title="what if",
        )

    async def what_if(self, request: Request) -> Response:
        """Play on from a turn with the typed actions, and show the result beside the stored episode."""
        asked = await _form(request)
        typed = [*asked.get("typed", ()), *(each for each in asked.get("action", ()) if each.strip())]
        turn, agent = _number(_firsts(asked), "turn", 0), _firsts(asked).get("agent", "")
        return await run_in_threadpool(self._what_if, request, turn, typed, agent)

    def _what_if(self, request: Request, turn: int, typed: list[str], agent: str) -> Response:
        source, number, episode = self._find_episode(request)
        forked = what_if(episode, turn, typed, agent)
        sides = [
            self._side(source, number, episode),
            {"name": "what if", "link": "", **episode_page(source, forked, "", advantages=False)},
        ]
        is_open = forked.stop is StopReason.TURN_LIMIT and not agent
        return self._compare_page(
            source,
            number,
            [episode, forked],
            sides,
            least=turn,
            form=_what_if_form(episode, turn, typed, is_open),
            heading=f"What if, at turn {turn + 1}",
            title="what if",
        )

    def _compare_page(
        self,
        source: Source,
        number: int,
        episodes: Sequence[Episode],
        sides: Sequence[dict[str, Any]],
        *,
        least: int | None = None,
        form: dict[str, Any] | None = None,
        heading: str,
        title: str,
    ) -> Response:
        difference = first_difference(episodes[0], episodes[1])
        common = difference.turn if difference else min(len(each.turns) for each in episodes)
        return self._page(
            "compare.html",
            source=source,
            number=number,
            sides=sides,
            difference=difference,
            common=min(common, least) if least is not None else common,
            colour="logprob",
            form=form,
            heading=heading,
            title=title,
        )

    async def note(self, request: Request) -> Response:
        """Store a flag and a note on an episode, and show the episode again."""
        asked = _firsts(await _form(request))
        return await run_in_threadpool(self._note, request, asked)

    def _note(self, request: Request, asked: Mapping[str, str]) -> Response:
        source, number, episode = self._find_episode(request)
        text, label = asked.get("note", "").strip(), asked.get("label", "")
        source.notes.set(episode.id, bool(asked.get("flag")), text, label)
        return RedirectResponse(f"{self.base}/run/{source.number}/episode/{number}", 303)

    async def values(self, request: Request) -> Response:
        """Compute the value of each turn of an episode, keep them, and show the episode again."""
        asked = _firsts(await _form(request))
        return await run_in_threadpool(self._values, request, asked.get("agent", ""))

    def _values(self, request: Request, agent: str) -> Response:
        source, number, episode = self._find_episode(request)
        source.values.set(episode.id, agent, SAMPLES, value_turns(episode, agent))
        return RedirectResponse(f"{self.base}/run/{source.number}/episode/{number}", 303)

    def prompt(self, request: Request) -> Response:
        """Show the prompt of a turn as the model saw it."""
        source, number, episode = self._find_episode(request)
        place = request.path_params["turn"]
        turn = _turn_of(episode, place)
        vocabulary = vocabulary_of(episode.run)
        return self._page(
            "prompt.html",
            source=source,
            number=number,
            turn=place,
            vocabulary=vocabulary,
            length=turn.prompt_length,
            prompt=raw_prompt(turn, vocabulary),
            messages=[
                (message, parts_of(message.content))
                for message in prompt_messages(episode, place)[-MOST_TURNS:]
            ],
            title=f"prompt of turn {place + 1}",
        )

    def text(self, request: Request) -> Response:
        """Return a long text unchanged, as plain text that no browser renders as a page."""
        _, _, episode = self._find_episode(request)
        part, place = request.path_params["part"], request.path_params["turn"]
        if place == len(episode.turns) and part in episode.ends:
            text = text_of(episode.ends[part].observation)
        elif part == "observation":
            text = text_of(_turn_of(episode, place).observation)
        elif part == "answer":
            text = _turn_of(episode, place).said.text
        else:
            raise HTTPException(404, "There is no such text.")
        return PlainTextResponse(text.encode("utf-8", "backslashreplace").decode())

    def static(self, request: Request) -> Response:
        """Return a static file."""
        name = request.path_params["name"]
        if name not in STATIC:
            raise HTTPException(404, "There is no such file.")
        return Response(static(name), media_type=STATIC[name], headers={"cache-control": "max-age=3600"})

    def refuse(self, request: Request, error: Exception) -> Response:
        """Show the error page of a refused request."""
        code = error.status_code if isinstance(error, HTTPException) else 400
        message = error.detail if isinstance(error, HTTPException) else str(error)
        return self._page("refused.html", message=message, code=code, title="Not shown", status=code)

    # -- parts of pages

    def _page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        text = self.env.get_template(template).render(base=self.base, exported=False, **values)
        return HTMLResponse(text, status)

    def _source(self, request: Request) -> Source:
        return self._source_of(request.path_params["run"])

    def _source_of(self, number: int) -> Source:
        if number >= len(self.sources):
            raise HTTPException(404, f"There is no run {number}; {len(self.sources)} are open.")
        return self.sources[number]

    def _find_episode(self, request: Request) -> tuple[Source, int, Episode]:
        """Return the run, the number and the episode of an address."""
        return self._read_episode(request.path_params["run"], request.path_params["number"])

    def _read_episode(self, run: int, number: int) -> tuple[Source, int, Episode]:
        source = self._source_of(run)
        if number >= len(source.store):
            raise HTTPException(
                404, f"There is no episode {number}; {source.name} holds {len(source.store)}."
            )
        return source, number, source.store[number]

    def _side(self, source: Source, number: int, episode: Episode) -> dict[str, Any]:
        """Return the template values of a stored episode on a page that compares two."""
        link = f"{self.base}/run/{source.number}/episode/{number}"
        return {"name": f"{source.name}, {number}", "link": link, **episode_page(source, episode, "")}

    def _read_filters(
        self, source: Source, asked: Mapping[str, str]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the filters of an address, as arguments for the store and as values for the form."""
        chosen = {name: asked.get(name, "") for name in ("spec", "stop", "outcome", "iteration", "seed")}
        wanted = source.filter_of(chosen["spec"])
        if chosen["stop"]:
            wanted["stop"] = chosen["stop"]
        if chosen["outcome"]:
            if chosen["outcome"] not in OUTCOMES:
                raise HTTPException(
                    400, f"outcome is {chosen['outcome']!r:.40}; accepted: {', '.join(OUTCOMES)}."
                )
            wanted |= OUTCOMES[chosen["outcome"]]
        if chosen["iteration"]:
            wanted["job_prefix"] = f"{_number(asked, 'iteration', 1) - 1}-"  # jobs count from 0
        if chosen["seed"]:
            wanted["seed"] = _number(asked, "seed", 0)
        return wanted, chosen


def _turn_of(episode: Episode, place: int) -> Turn:
    if place >= len(episode.turns):
        raise HTTPException(404, f"There is no turn {place}; the episode has {len(episode.turns)}.")
    return episode.turns[place]


def _can_fork(episode: Episode) -> bool:
    try:
        check_what_if(episode)
    except BadArgument:
        return False
    return True


def _can_value(episode: Episode) -> bool:
    return bool(episode.turns) and not episode.several and _can_fork(episode)


def _what_if_form(episode: Episode, turn: int, typed: list[str], is_open: bool) -> dict[str, Any]:
    """Return the values of the what-if form: the turn, the typed actions, and whether play can go on."""
    at = turn + len(typed)
    return {
        "turn": turn,
        "typed": typed,
        "open": is_open,
        "stored": episode.turns[at].action if not typed and at < len(episode.turns) else None,
        "agents": _list_players(episode),
    }


def _list_players(episode: Episode) -> dict[str, str]:
    """Return who can play on, by name, with what the form calls them; the solver if there is one."""
    solver = registry.spec(episode.spec).solver != "none"
    return {name: label for name, label in AGENTS.items() if name != "solver" or solver}


async def _form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form, with line feeds as line ends."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_AT_MOST:
            raise HTTPException(413, "The form is too long.")
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=200)
    except ValueError as error:
        raise HTTPException(400, "The request body is not a form.") from error
    return {name: [value.replace("\r\n", "\n") for value in values] for name, values in fields.items()}


def _firsts(form: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: values[0] for name, values in form.items()}


def _place(text: str) -> tuple[int, int]:
    """Return the run and the number of an episode written as RUN.NUMBER, for example 0.17."""
    run, _, number = text.partition(".")
    if not all(each.isascii() and each.isdigit() and len(each) < 12 for each in (run, number)):
        raise HTTPException(400, f"an episode is {text!r:.40}; accepted: RUN.NUMBER, as 0.17.")
    return int(run), int(number)


def _number(asked: Mapping[str, Any], name: str, default: int) -> int:
    value = str(asked.get(name) or default)
    if not value.isascii() or not value.isdigit() or len(value) > 20:
        raise HTTPException(400, f"{name} is {value!r:.40}; accepted: a number, 0 or more.")
    return int(value)


def summary_in_list(source: Source, entry: Entry) -> Summary | list[str]:
    """Return why an episode ended so, or else its actions in short; nothing if its stored line is long."""
    episode = source.read_episode(entry, SHORT_LINE)
    return [] if episode is None else summary_of(episode) or short_actions(episode)


def episode_page(
    source: Source, episode: Episode, colour: str, *, first: int = 0, advantages: bool = True
) -> dict[str, Any]:
    """Return the template values of an episode's page from turn `first` on; `advantages`: compute them."""
    vocabulary = vocabulary_of(episode.run)
    weighed = advantages_of(source, episode) if source.training and advantages else {}
    turns = conversation(episode, vocabulary, weighed, first)
    over = first + len(turns) >= len(episode.turns)
    rewards = [turn.reward for turn in episode.turns if turn.reward and math.isfinite(turn.reward)]
    known = {
        "logprob": any(turn.logprobs is not None for turn in episode.turns),
        "entropy": any(turn.token_ids and entropies(turn) is not None for turn in episode.turns),
        "advantage": bool(weighed),
        "mask": any(turn.token_ids for turn in episode.turns),
        "none": True,
    }
    colour = colour if known.get(colour) else "none"
    limits = {f"limit of {name}": getattr(episode.run.limits, name) for name in LIMITS}
    return {
        "episode": episode,
        "turns": turns,
        "values": source.values.of(episode),
        "ends": [
            (seat, end, parts_of(end.observation), findings_of(end.info), plain_json(end.info))
            for seat, end in (episode.ends.items() if over else ())
        ],
        "first": first,
        "before": max(0, first - MOST_TURNS) if first else None,
        "behind": None if over else first + len(turns),
        "vocabulary": vocabulary,
        "colours": {name: known[name] for name in COLOURS},
        "colour": colour,
        "settings": {
            name: value for name, value in {**episode.run.sampling, **limits}.items() if value is not None
        },
        "sampled": sum(len(turn.token_ids) for turn in episode.turns) or sum(turn.sampled for turn in turns),
        "scale": max(map(abs, rewards), default=1.0),
        "earned": [(seat, episode.reward(seat)) for seat in episode.seats] if episode.several else [],
    }
