"""Write a run, or one episode, as one HTML file that loads nothing from elsewhere."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

from markupsafe import Markup

import gem
from gem.errors import check_least, refuse_first
from gem.files import replace_file
from gem.rollout.index import Entry
from gem.viewer import charts
from gem.viewer.app import episode_page, summary_in_list
from gem.viewer.formats import content_policy, static, templates
from gem.viewer.sources import Source

DRAWN = ("success", "reward", "turns", "unreadable", "entropy", "kl")
"""The curves of an exported training run, if it has them."""


def export(source: Source, path: Path, episode: int | None = None, limit: int | None = None) -> int:
    """Write a run into one HTML file, and return how many episodes it holds.

    Args:
        source: the run.
        path: the file; an existing one is replaced.
        episode: the number of an episode; only that one is written.
        limit: the most episodes to write, counted from the last; None: all.

    Raises:
        BadArgument: for an episode that does not exist, or a path that is not a regular file.
        StoreError: when the file cannot be written.
    """
    count = len(source.store)
    refuse_first(
        (
            episode is not None and not 0 <= episode < count,
            f"there is no episode {episode}; {source.name} holds {count}.",
        ),
        (
            path.exists() and not path.is_file(),  # replacing it would take a device or a pipe away
            f"{path} is not a regular file; name one that may be replaced.",
        ),
    )
    check_least("limit", limit)
    if episode is None:
        most = min(count, limit or count)
        entries, _ = source.store.page(order="number", descending=True, count=most)
    else:
        entries, _ = source.store.page(start=episode, count=1)
    curves = "" if episode is not None else _curves(source)
    styles = [static("app.css"), *([static("vendor/uplot/uPlot.min.css")] if curves else [])]
    scripts = [static("app.js")]
    if curves:
        scripts += [static("vendor/uplot/uPlot.iife.min.js"), static("charts.js")]
    stream = (
        templates()
        .get_template("export.html")
        .stream(
            source=source,
            entries=entries,
            alone=episode is not None,
            left_out=len(entries) < count,
            episode_count=count,
            figures=source.figures(),
            notes=source.notes.all(),
            summary_of=functools.partial(summary_in_list, source),
            episodes=_episodes(source, entries, templated=episode is None),
            curves=Markup(curves),
            styles=list(map(Markup, styles)),
            scripts=list(map(Markup, scripts)),
            policy=content_policy(styles, scripts),
            version=gem.__version__,
        )
    )
    with (
        replace_file(path) as partial,
        partial.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file,
    ):
        file.writelines(stream)
    return sum(bool(entry.id) for entry in entries)  # a damaged line has none


def _episodes(source: Source, entries: list[Entry], templated: bool) -> Iterator[Markup]:
    """Yield each episode as HTML; `templated`: inside a template element, rendered when it is opened."""
    template = templates().get_template("reader.html")
    for entry in entries:
        stored = source.read_episode(entry)
        if stored is None:
            continue
        page = episode_page(source, stored, "logprob")
        text = template.render(
            source=source,
            number=entry.number,
            base="",
            exported=True,
            note=source.notes.of(stored.id),
            forkable=False,
            **page,
        )
        html = Markup(text)
        if templated:
            html = Markup(
                '<template id="e-{}"><p class="back"><a href="#">all episodes</a></p>{}</template>\n'
            ).format(entry.number, html)
        yield html


def _curves(source: Source) -> str:
    if not source.history:
        return ""
    there = [name for name in DRAWN if name in source.history[-1]]
    curves = charts.draw_curves([source], there, 1, True)
    return json.dumps(curves).replace("<", "\\u003c").replace("&", "\\u0026")
