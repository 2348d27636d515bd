"""Tasks on text and data: searching, reports, logs, schedules, configuration, encodings."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from gem.envs.terminal.base import WORDS, Check, Machine, TerminalTask, expect, sentence
from gem.envs.terminal.tasks.texts import instruction, solution


def find_text(rng: Random, hard: bool) -> TerminalTask:
    """Find the files that hold a word."""
    word = rng.choice(WORDS)
    plain = [other for other in WORDS if other != word]
    near = [f"{word}s", f"un{word}", f"{word}_old", word[:-1]]
    marks = [word, word.capitalize(), word.upper()]
    files: dict[str, bytes] = {}
    counts: dict[str, int] = {}
    for number in range(40 if hard else 12):
        folder = "/".join(["notes", *rng.sample(WORDS[:20], rng.randint(0, 2))])
        kind = (
            rng.choice(["md", "md", "txt", "log"]) if number != 2 else "md"
        )  # this file always has the word
        path = f"{folder}/{number:02d}-{rng.choice(WORDS)}.{kind}"
        lines = [sentence(rng, 8, plain) for _ in range(rng.randint(3, 12))]
        for mark in [rng.choice(near), rng.choice(marks)][: number % 3]:
            lines.insert(rng.randrange(len(lines)), f"{sentence(rng, 3, plain)} {mark}, {rng.choice(plain)}")
        counts[path] = sum(bool(re.search(rf"\b{word}\b", line, re.IGNORECASE)) for line in lines)
        files[path] = "".join(f"{line}\n" for line in lines).encode()
    kept = {path: n for path, n in counts.items() if n and (path.endswith(".md") or not hard)}
    which = "the .md files under notes/ (at any depth)" if hard else "the files under notes/ (at any depth)"
    form = "PATH:N, where N is the number of its lines with the word" if hard else "PATH"
    only = "--include='*.md' " if hard else ""
    return TerminalTask(
        instruction("find_text", which=which, word=word, form=form),
        expect("found.txt", "\n".join(sorted(f"{path}:{n}" if hard else path for path, n in kept.items()))),
        f"grep -r{'c' if hard else 'l'}iw {only}{word} notes | grep -v ':0$' | LC_ALL=C sort > found.txt",
        files,
        looks=("ls notes", "find notes -type f | LC_ALL=C sort | head -n 5"),
    )


def csv_report(rng: Random, hard: bool) -> TerminalTask:
    """Sum up a table by region."""
    regions = [f"{name.capitalize()}, {side}" for name in rng.sample(WORDS, 3) for side in ("North", "South")]
    prices = {f"{name} {kind}": rng.randint(99, 9999) for name in rng.sample(WORDS, 5) for kind in "AB"}
    year = rng.randint(2015, 2024)
    totals: Counter[str] = Counter()
    rows: list[list[object]] = []
    for number in range(400 if hard else 40):
        region, product = rng.choice(regions), rng.choice(list(prices))
        quantity, status = rng.randint(1, 9), rng.choice(["paid", "paid", "paid", "cancelled", "open"])
        date = datetime.date(rng.choice([year, year, year - 1]), rng.randint(1, 12), rng.randint(1, 28))
        if number == 0:
            status, date = "paid", date.replace(year=year)
        if status == "paid" and date.year == year:
            totals[region] += quantity * prices[product]
        price: list[object] = [] if hard else [prices[product]]
        rows.append([number, date.isoformat(), region, status, product, quantity, *price])
    head = ["order", "date", "region", "status", "product", "quantity", *([] if hard else ["cents"])]
    files = {"orders.csv": _csv([head, *rows])}
    if hard:
        files["products.csv"] = _csv([["product", "cents"], *map(list, prices.items())])
    where = "products.csv, by product" if hard else "the column cents"

    def check(machine: Machine) -> str:
        report = machine.json("report.json")
        if not isinstance(report, dict) or report.keys() != totals.keys():
            return "report.json has not the regions"
        for region, cents in totals.items():
            value = report[region]
            if isinstance(value, bool) or not isinstance(value, int | float):
                return f"{region} is no number"
            if not abs(value - cents / 100) < 0.005:
                return f"{region} is wrong"
        return ""

    return TerminalTask(
        instruction("csv_report", year=year, where=where),
        check,
        solution("csv_report", hard=hard, year=year),
        files,
        looks=("head -n 4 orders.csv", "wc -l orders.csv"),
    )


def _csv(rows: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def log_analysis(rng: Random, hard: bool) -> TerminalTask:
    """Count the failed requests in web server logs."""
    addresses = [f"10.{rng.randint(0, 9)}.{rng.randint(0, 99)}.{rng.randint(1, 254)}" for _ in range(12)]
    days = ["11/Mar/2024", "12/Mar/2024", "13/Mar/2024"]
    day = rng.choice(days)
    counts: Counter[str] = Counter()
    logs: list[list[str]] = [[] for _ in range(3 if hard else 1)]
    for number in range(900 if hard else 150):
        address, when = rng.choice(addresses), rng.choice(days)
        status = rng.choice([200, 200, 200, 301, 404, 500, 502, 503])
        if number < 3:
            address, when, status = addresses[number], day, 500
        time = f"{when}:{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d} +0000"
        path = f"/{rng.choice(WORDS)}/{rng.choice([500, 503, 7])}"
        logs[number % len(logs)].append(
            f'{address} - - [{time}] "GET {path} HTTP/1.1" {status} {rng.randint(200, 9000)}'
        )
        if status >= 500 and (not hard or when == day):
            counts[address] += 1
    wanted = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]
    texts = ["".join(f"{line}\n" for line in log).encode() for log in logs]
    files = {"logs/access.log": texts[0]}
    if hard:
        files |= {"logs/access.log.1": texts[1], "logs/access.log.2.gz": gzip.compress(texts[2], mtime=0)}
    what = "The web server's logs are in logs/, the oldest compressed." if hard else "See logs/access.log."
    date = f" on {day.replace('/', ' ')}" if hard else ""
    only = f"grep -F '[{day}:' | " if hard else ""
    return TerminalTask(
        instruction("log_analysis", what=what, date=date),
        expect("top.txt", "\n".join(f"{address} {count}" for address, count in wanted)),
        f"zcat -f logs/* | {only}awk '$9 >= 500 {{n[$1]++}} END {{for (a in n) print a, n[a]}}' "
        "| LC_ALL=C sort -k2,2nr -k1,1 | head -n 3 > top.txt",
        files,
        looks=("ls logs", "head -n 2 logs/access.log", "wc -l logs/access.log"),
    )


def schedule(rng: Random, hard: bool) -> TerminalTask:
    """List the times at which a job of a crontab runs."""
    jobs = [f"{verb}-{name}" for verb, name in zip(["sync", "backup", "purge", "mail", "index"] * 2,
                                                   rng.sample(WORDS, 10), strict=True)]  # fmt: skip
    lines, ours = [], rng.randrange(len(jobs))
    first = datetime.date(2024, rng.randint(1, 10), rng.randint(1, 28))
    last = first + datetime.timedelta(40 if hard else 9)
    wanted: list[str] = []
    for number, job in enumerate(jobs):
        start, end = sorted(rng.sample(range(24), 2))
        minutes = [[rng.choice([0, 5, 30])], list(range(0, 60, 20)), sorted(rng.sample(range(60), 2))]
        hours = [[rng.randint(0, 23)], list(range(0, 24, 6)), list(range(start, end + 1, 3))]
        a, b = rng.randrange(3), rng.randrange(3)
        minute = [f"{minutes[0][0]}", "*/20", ",".join(map(str, minutes[2]))][a]
        hour = [f"{hours[0][0]}", "*/6", f"{start}-{end}/3"][b]
        monday = rng.randint(0, 4)
        days, dow = (
            ([*range(monday, monday + 3)], f"{monday}-{monday + 2}")
            if rng.random() < 0.5
            else ([*range(7)], "*")
        )
        dates, dom = [*range(1, 32)], "*"
        if hard and dow == "*":  # cron combines the two with "or", so only one of them is set
            dates = sorted(rng.sample(range(1, 29), 5))
            dom = ",".join(map(str, dates))
        lines.append(f"{minute} {hour} {dom} * {dow} {job}")
        if number == ours:
            for offset in range((last - first).days + 1):
                date = first + datetime.timedelta(offset)
                if date.day in dates and date.isoweekday() % 7 in days:
                    wanted += [f"{date} {h:02d}:{m:02d}" for h in hours[b] for m in minutes[a]]
    return TerminalTask(
        instruction("schedule", job=jobs[ours], first=first, last=last),
        expect("runs.txt", "\n".join(wanted)) if wanted else _empty("runs.txt"),
        solution("schedule", job=jobs[ours], first=first, last=last),
        {"jobs.cron": "".join(f"{line}\n" for line in lines).encode()},
        looks=("cat jobs.cron", "wc -l jobs.cron"),
    )


def _empty(path: str) -> Check:
    return lambda machine: "" if machine.read(path) in (b"", b"\n") else f"{path} is not empty"


def config_edit(rng: Random, hard: bool) -> TerminalTask:
    """Change a configuration file and nothing else in it."""
    sections = rng.sample(WORDS, 8 if hard else 4)
    keys = rng.sample(["port", "timeout", "retries", "workers", "host", "level", "path", "limit"], 5)
    values = {(s, k): str(rng.randint(10, 999)) for s in sections for k in keys}
    changes = {place: str(rng.randint(1000, 9999)) for place in rng.sample(sorted(values), 6 if hard else 2)}
    gone = rng.choice(sorted(values.keys() - changes.keys())) if hard else None

    def write(edited: bool) -> str:
        lines = ["# settings: read at start", ""]
        for section in sections:
            lines += [f"[{section}]", f"; {keys[0]} of {section}: see the manual"]
            for key in keys:
                if edited and (section, key) == gone:
                    continue
                value = changes.get((section, key), values[section, key]) if edited else values[section, key]
                lines.append(f"{key} = {value}{'  # tuned' if hard and key == keys[1] else ''}")
            lines.append("")
        return "\n".join(lines)

    asked = [f"in [{section}] set {key} to {value}" for (section, key), value in changes.items()]
    script = [
        f"sed -i '/^\\[{section}\\]/,/^$/ s/^{key} = [0-9]*/{key} = {value}/' app.ini"
        for (section, key), value in changes.items()
    ]
    if gone:
        asked.append(f"in [{gone[0]}] remove the line of {gone[1]}")
        script.append(f"sed -i '/^\\[{gone[0]}\\]/,/^$/ {{/^{gone[1]} = /d}}' app.ini")
    wanted = write(True)
    return TerminalTask(
        instruction("config_edit", changes="; ".join(asked)),
        lambda machine: "" if machine.text("app.ini") == wanted.strip() else "app.ini is not as asked",
        "\n".join(script),
        {"app.ini": write(False).encode()},
        looks=("cat app.ini", "grep -n '^\\[' app.ini"),
    )


def encodings(rng: Random, hard: bool) -> TerminalTask:
    """Convert texts in several encodings to UTF-8."""
    letters = {
        "iso-8859-1": "äöüéèñ",
        "cp1251": "жшяыю",
        "utf-16": "αβλ漢字",
        "utf-8": "ñ漢я",
        "iso-8859-2": "łąęőž",
    }
    charsets = [*letters] if hard else ["iso-8859-1", "utf-16", "utf-8"]
    files: dict[str, bytes] = {}
    wanted: dict[str, bytes] = {}
    rows = []
    for number in range(15 if hard else 5):
        charset = charsets[number % len(charsets)]
        name = f"texts/{rng.choice(WORDS)}-{number}.txt"
        lines = [
            f"{sentence(rng, 3)} {''.join(rng.choice(letters[charset]) for _ in range(6))}" for _ in range(4)
        ]
        end = rng.choice(["\n", "\r\n"])
        files[name] = "".join(f"{line}{end}" for line in lines).encode(charset)
        wanted[name] = "".join(f"{line}\n" for line in lines).encode()
        rows.append(f"{name},{charset}\n")
    files["charsets.csv"] = "".join(rows).encode()
    return TerminalTask(
        instruction("encodings"),
        lambda machine: next(
            (f"{name} is wrong" for name, data in wanted.items() if machine.read(name) != data), ""
        ),
        solution("encodings"),
        files,
        looks=("cat charsets.csv", "ls texts"),
    )


def records(rng: Random, hard: bool) -> TerminalTask:
    """Join JSON Lines records by a key."""
    people = {
        number: rng.choice(WORDS).capitalize() for number in rng.sample(range(100, 999), 30 if hard else 8)
    }
    limit = rng.randint(40, 60)
    events: list[dict[str, object]] = []
    best: dict[int, int] = {}
    for _ in range(300 if hard else 40):
        who, points = rng.choice(sorted(people)), rng.randint(0, 99)
        kept = not hard or rng.random() < 0.8
        events.append({"person": who, "points": points, **({"void": not kept} if hard else {})})
        if kept:
            best[who] = max(best.get(who, 0), points)
    wanted = sorted(f"{who}\t{people[who]}\t{points}" for who, points in best.items() if points >= limit)
    void = ' Events with "void": true do not count.' if hard else ""
    test = " and not e['void']" if hard else ""
    return TerminalTask(
        instruction("records", void=void, limit=limit),
        expect("best.tsv", "\n".join(wanted)) if wanted else _empty("best.tsv"),
        solution("records", limit=limit, test=test),
        {
            "people.jsonl": _lines([{"id": number, "name": name} for number, name in people.items()]),
            "events.jsonl": _lines(events),
        },
        looks=("head -n 2 people.jsonl", "head -n 2 events.jsonl"),
    )


def _lines(rows: Sequence[Mapping[str, object]]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()
