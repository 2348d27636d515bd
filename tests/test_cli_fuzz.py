"""Damaged files: every command ends in time with an exit code and no traceback; nothing named in them runs.

`CASES` lists every file that a command reads, with a good example. `DAMAGES` are what happens to it.
"""

import contextlib
import faulthandler
import io
import json
import os
import pickle
import random
import re
import resource
import shutil
import signal
import sys
import warnings
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from gem import cli, source_files
from gem.record import Episode, RunInfo, SeatEnd, StopReason, Turn, Verdict
from gem.rollout import EpisodeStore
from gem.specs import TaskRef

ENV = "game:GuessTheNumber-v0-easy"
GOLDEN = f"tests/golden/{ENV.replace(':', '.')}.jsonl"
LONGEST_S = 60.0  # far above what any takes, so that load does not matter
MOST_MEMORY = 3 << 30
CANARY = "canary_of_gem"

pytestmark = pytest.mark.filterwarnings("ignore")


class Case(NamedTuple):
    """A command, the file in its folder that is damaged, and the packages that it needs.

    `code`: what the file names runs, as the command line names it like a Python file.
    """

    command: str
    file: str
    needs: str = ""
    code: bool = False

    @property
    def seed(self):
        return f"Case(command={self.command!r}, file={self.file!r}, needs={self.needs!r})"


CASES = [
    *[
        Case(command, "run/episodes.jsonl")
        for command in (
            "store ls run/episodes.jsonl",
            "store ls run/episodes.jsonl --json",
            "store cat run/episodes.jsonl 0",
            "store cat run/episodes.jsonl -1 --json",
            "store verify run",
            "store merge new.jsonl run/episodes.jsonl",
            "show run 1",
            "tail run --once",
            "replay run all",
            "value run 0 --agent random -n 2",
            "compare run other",
            "compare other run --metric return",
            "power run",
            "export run new.jsonl",
            "export run new --format atif",
            "export run new.jsonl --format sft",
            "export run new.jsonl --format preferences",
            "view run --export new.html",
            f"eval {ENV} --agent random -n 2 --out run",
            f"demos {ENV} -n 3 --out run/episodes.jsonl",
        )
    ],
    Case("export tokens.jsonl new --format openenv", "tokens.jsonl"),
    Case("export run new.parquet", "run/episodes.jsonl", "pyarrow"),
    Case("store ls run/episodes.jsonl", "run/episodes.jsonl.index.sqlite"),
    Case("store cat run/episodes.jsonl 1", "run/episodes.jsonl.index.sqlite"),
    Case("store verify run", "run/episodes.jsonl.index.sqlite"),
    Case("view run --export new.html", "run/episodes.jsonl.notes.jsonl"),
    Case("store verify run", "run/result.json"),
    Case("eval --resume --out run", "run/command.json"),
    Case(f"eval {ENV} --agent random -n 2 --out run", "run/result.json"),
    Case("view run --export new.html", "run/result.json"),
    Case("compare run other", "run/result.json"),
    Case("eval suite.toml", "suite.toml"),
    Case("train --config train.toml --print-config", "train.toml", "torch"),
    Case("baseline study.toml --dry-run", "study.toml", "torch"),
    *[
        Case(f"eval --data {name} --agent random -n 1", name, needs)
        for name, needs in (
            ("data.csv", ""),
            ("data.tsv", ""),
            ("data.jsonl", ""),
            ("data.jsonl.gz", ""),
            ("data.json", ""),
            ("data.parquet", "pyarrow"),
        )
    ],
    Case("audit --data data.csv", "data.csv"),
    Case("audit --data data.jsonl", "data.jsonl"),
    Case("eval --data data.csv --few-shot few.jsonl --agent random -n 1", "few.jsonl"),
    Case("eval --data data.csv --prompt prompt.txt --agent random -n 1", "prompt.txt"),
    Case("eval --data data.csv --grader rubric.toml --agent random -n 1", "rubric.toml", code=True),
    Case(f"eval {ENV} --agent random -n 1 --prices prices.toml", "prices.toml"),
    Case(f"check {ENV} --seeds 1 --record", GOLDEN),
    Case(f"audit {ENV} --episodes 2 --instances 2 --json cards.json", "cards.json"),
    Case("regrade answers/episodes.jsonl --grader text", "answers/episodes.jsonl"),
    Case("regrade answers/episodes.jsonl --grader text --cache cache.sqlite", "cache.sqlite"),
    Case("replay answers all", "data.csv"),
    Case("import trajectories.jsonl new.jsonl --format atif", "trajectories.jsonl"),
    Case("import traces.jsonl new.jsonl --format openenv", "traces.jsonl"),
    Case("import log.eval new.jsonl", "log.eval", "inspect_ai"),
    Case("import log.json new.jsonl --format inspect", "log.json", "inspect_ai"),
    Case("export run new.json --format inspect", "run/episodes.jsonl", "inspect_ai"),
    Case("import table.jsonl new.jsonl", "table.jsonl"),
    Case("import table.parquet new.jsonl", "table.parquet", "pyarrow"),
    *[
        Case(f"{command}", f"trained/{file}", "torch")
        for command in (
            "report trained --out new.html",
            "view trained --export new.html",
            "store verify trained",
        )
        for file in (
            "metrics.jsonl",
            "config.json",
            "summary.json",
            "evaluations.jsonl",
            "machine.json",
            "warmup.jsonl",
            "checkpoint.pt",
        )
    ],
    Case("train --out trained --resume --print-config", "trained/config.json", "torch"),
    Case("train --out trained --resume --episodes 24", "trained/checkpoint.pt", "torch"),
]
"""Each command with each file that it reads; `examples` writes the good ones."""


def examples(folder: Path) -> None:
    """Write a good example of each file."""
    run = folder / "run"
    succeed("eval", ENV, "--agent", "random", "-n", "2", "--out", str(run))
    shutil.copytree(run, folder / "other")
    (run / "episodes.jsonl.notes.jsonl").write_text('{"episode":"x","flag":true,"note":"look","at":1.5}\n')
    (folder / "suite.toml").write_text(
        f'about = "one"\n\n[sampling]\nn = 1\nk = 1\ntemperature = 0.5\n\n[[environments]]\n'
        f'category = "games"\nids = ["{ENV}"]\nwrappers = ["concat"]\nturns = 3\n'
    )
    (folder / "train.toml").write_text(
        f'env = "{ENV}"\nmodel = "tiny"\nalgorithm = "rebn"\ngamma = 0.3\nepisodes = 512\n'
        'batch = 32\nout = "r"\nwrappers = ["concat"]\ncallback = []\n'
    )
    (folder / "study.toml").write_text(
        'title = "Is it?"\nabout = "a"\nseeds = [1]\ncpu_s = 60\nverdict = "yes"\n\n[settings]\n'
        f'episodes = 64\nstore = "none"\n\n[[environments]]\nid = "{ENV}"\nname = "guess"\n\n[[variants]]\n'
        'name = "a"\nalgorithm = "rebn"\n'
    )
    rows = [{"question": f"What is {n}+1?", "answer": str(n + 1), "id": f"q{n}"} for n in range(4)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    for name, comma in (("data.csv", ","), ("data.tsv", "\t")):
        table = [comma.join(rows[0]), *(comma.join(row.values()) for row in rows)]
        (folder / name).write_text("\n".join(table) + "\n")
    for name in ("data.jsonl", "few.jsonl"):
        (folder / name).write_text(lines)
    import gzip

    (folder / "data.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (folder / "data.json").write_text(json.dumps(rows))
    (folder / GOLDEN).parent.mkdir(parents=True)
    succeed("check", ENV, "--seeds", "1", "--record")
    (folder / "prompt.txt").write_text("Answer in a word: {question}\n")
    (folder / "rubric.toml").write_text(
        'correct = "right"\n\n[right]\ngrader = "number"\nweight = 2.0\n\n[same]\ngrader = "text"\n'
    )
    (folder / "prices.toml").write_text('[models."m"]\ninput = 0.25\ncached = 0.025\noutput = 2.0\n')
    call(["audit", ENV, "--episodes", "2", "--instances", "2", "--json", str(folder / "cards.json")])
    succeed(*["eval", "--data", "data.csv", "--agent", "random", "-n", "2", "--out", "answers"])
    succeed(*["regrade", "answers/episodes.jsonl", "--grader", "text", "--cache", "cache.sqlite"])
    _write_tokens(folder / "tokens.jsonl")
    for form, source, name in (
        ("atif", run, "trajectories.jsonl"),
        ("openenv", folder / "tokens.jsonl", "traces.jsonl"),
        *([("inspect", run, "log.eval"), ("inspect", run, "log.json")] if find_spec("inspect_ai") else []),
    ):
        succeed("export", str(source), str(folder / name), "--format", form)
    succeed("export", str(run), str(folder / "table.jsonl"))
    if find_spec("pyarrow"):
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "data.parquet")
        succeed("export", str(run), str(folder / "table.parquet"))
    _write_trained(folder / "trained")


def succeed(*args: str) -> None:
    """Run a command that must succeed."""
    code, _, err = call(list(args))
    assert code == 0, (args, err)


def _write_tokens(path: Path) -> None:
    """Write a store whose episodes have tokens."""
    with EpisodeStore(path) as store:
        for number in range(2):
            turn = Turn("agent", "say five", f"five {number}", reward=0.5)
            turn.hold((1, 2), (3, number), (-0.5, -1.0))
            ends = {"agent": SeatEnd(StopReason.SOLVED, terminated=True)}
            store.append(
                Episode(
                    TaskRef(ENV, seed=number),
                    RunInfo("run", "agent"),
                    f"e{number}",
                    turns=[turn],
                    ends=ends,
                    stop=StopReason.SOLVED,
                    verdict=Verdict.SCORED,
                )
            )


def _write_trained(folder: Path) -> None:
    """Write the files of a short training run."""
    if not find_spec("torch"):
        return
    args = [
        "--episodes",
        "16",
        "--batch",
        "8",
        "--warmup-steps",
        "1",
        "--eval-every",
        "1",
        "--eval-episodes",
        "2",
    ]
    succeed("train", "--env", ENV, "--out", str(folder), *args)


# -- damages

Damage = Callable[[Path, random.Random], None]


def _edit(change):
    def damage(path, rng):
        path.write_bytes(change(path.read_bytes(), rng))

    damage.__name__ = change.__name__
    return damage


def flip_bits(data, rng):
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def cut(data, rng):
    return data[: rng.randrange(len(data))]


def cut_out(data, rng):
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randint(1, 40) :]


def double(data, rng):
    start = rng.randrange(len(data))
    return data[:start] + data[start : start + rng.randint(1, 200)] * 2 + data[start:]


def put_nul(data, rng):
    at = rng.randrange(len(data))
    return data[:at] + b"\0" * rng.randint(1, 5) + data[at:]


def put_bom(data, rng):
    return rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")) + data


def as_utf16(data, rng):
    return data.decode("latin-1").encode("utf-16")


def put_bad_utf8(data, rng):
    at = rng.randrange(len(data))
    return data[:at] + rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80")) + data[at:]


def empty(data, rng):
    return b""


def blank(data, rng):
    return rng.choice((b"\n\n\n", b" ", b"\r\n", b"null", b"{}", b"[]", b'""', b"0"))


def junk(data, rng):
    return rng.randbytes(rng.randint(1, 3000))


NUMBER, TEXT = re.compile(rb"-?\d+(?:\.\d+)?"), re.compile(rb'"[^"\\\n]{1,200}"')


def _swap(pattern, values):
    def swap(data, rng):
        places = list(pattern.finditer(data)) or [re.match(b"", data)]
        for place in sorted(
            rng.sample(places, min(len(places), rng.randint(1, 3))), key=lambda m: -m.start()
        ):
            data = data[: place.start()] + rng.choice(values) + data[place.end() :]
        return data

    return swap


HUGE = (
    b"1e400",
    b"-1e400",
    b"9" * 5000,
    b"1" + b"0" * 400,
    b"-1",
    b"0",
    b"1.5",
    b"NaN",
    b"-Infinity",
    b"2147483648",
)
OTHER = (
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'"x"',
    b"[[]]",
    b'{"a":{"b":[1]}}',
    b"-0.0",
    b'"\\ud800"',
    b"[null]",
)
NAMES = (
    b'"../../../../../../etc/passwd"',
    b'"/dev/zero"',
    f'"{CANARY}:RUN"'.encode(),
    f'"{CANARY}.py:RUN"'.encode(),
    f'"./{CANARY}.py:RUN"'.encode(),
    b'"\\u0000"',
    b'"\\u001b[2J"',
    b'"' + b"x" * 100_000 + b'"',
    b'"os:system"',
    b'"\\n"',
)
swap_numbers, swap_types, swap_names = _swap(NUMBER, HUGE), _swap(TEXT, OTHER), _swap(TEXT, NAMES)
swap_numbers.__name__, swap_types.__name__, swap_names.__name__ = "swap_numbers", "swap_types", "swap_names"


def nest(data, rng):
    deep = rng.choice((50, 1100, 100_000))
    value = rng.choice((b"[" * deep + b"]" * deep, b'{"a":' * deep + b"1" + b"}" * deep, b"[" * deep))
    places = list(TEXT.finditer(data))
    if not places or rng.random() < 0.3:
        return value
    place = rng.choice(places)
    return data[: place.start()] + value + data[place.end() :]


def multiply(data, rng):
    return data * (500_000 // max(1, len(data)))


def swap_lines(data, rng):
    lines = data.splitlines(keepends=True)
    rng.shuffle(lines)
    return b"".join(lines)


class _Payload:
    def __reduce__(self):
        return exec, (f"import {CANARY}",)


def pickled(data, rng):
    return pickle.dumps(_Payload())


def a_zip_of_bombs(data, rng):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("header.json", "samples/1.json", "../../evil.json", "_journal/start.json"):
            archive.writestr(name, b"[" * 1_000_000)
    return packed.getvalue()


def a_folder(path, rng):
    path.unlink()
    path.mkdir()


def a_pipe(path, rng):
    path.unlink()
    os.mkfifo(path)


def a_loop(path, rng):
    path.unlink()
    path.symlink_to(path.name)


def a_device(path, rng):
    path.unlink()
    path.symlink_to(rng.choice(("/dev/zero", "/dev/full", "/dev/null", "/dev/urandom")))


def a_socket(path, rng):
    import socket

    path.unlink()
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as made:  # the path may be too long
        made.bind(str(path))


def absent(path, rng):
    path.unlink()


DAMAGES: list[Damage] = [
    *map(
        _edit, (flip_bits, cut, cut_out, double, put_nul, put_bom, as_utf16, put_bad_utf8, empty, blank, junk)
    ),
    *map(_edit, (swap_numbers, swap_types, swap_names, nest, multiply, swap_lines, pickled, a_zip_of_bombs)),
    *(a_folder, a_pipe, a_loop, a_device, a_socket, absent),
]


# -- the calls


class TooLong(BaseException):
    """The command has not ended in time."""


def call(args: list[str]) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code, and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = cli.main(args)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 2
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def limits():
    """Raise TooLong after LONGEST_S; give MOST_MEMORY beyond what the process has."""

    def stop(number, frame):
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (pages + MOST_MEMORY, hard))
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    faulthandler.dump_traceback_later(2 * LONGEST_S, exit=True)  # C code may retry what a signal ends
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _copy_named(case: Case, good: Path, folder: Path) -> None:
    """Copy what the case names of the good examples: a copy of them all takes longer than most commands."""
    folder.mkdir()
    names = {word.partition("/")[0] for word in (case.file, *case.command.split())}
    for name in names | (
        {"data.csv"} if "answers" in names else set()
    ):  # whose questions those answers are to
        if (good / name).is_dir():
            shutil.copytree(good / name, folder / name, symlinks=True)
        elif (good / name).exists():
            shutil.copy2(good / name, folder / name)


def fault_of(case: Case, damage: Damage, seed: str, good: Path, folder: Path) -> str:
    """Damage a file and run its command; return what is wrong with the end, or ""."""
    _copy_named(case, good, folder)
    rng = random.Random(seed)
    path = folder / case.file
    damage(path, rng)
    (folder / f"{CANARY}.py").write_text(
        f"import pathlib\npathlib.Path({str(folder / 'ran')!r}).touch()\nRUN = print\n"
    )
    here = Path.cwd()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        # A damaged name of a grader is named by the user then, which no other test may find.
        own = {"GEM_CACHE": str(folder / "cache")} if case.code else {}
        names = set() if case.code else source_files._NAMES
        with mock.patch.object(source_files, "_NAMES", names), mock.patch.dict(os.environ, own), limits():
            code, _, err = call(case.command.split())
    except TooLong:
        return f"it had not ended after {LONGEST_S:g} s"
    except BaseException as error:
        import traceback

        where = traceback.extract_tb(error.__traceback__)[-6:]
        return f"{type(error).__name__}: {str(error)[:200]}\n    " + "\n    ".join(
            f"{frame.filename}:{frame.lineno} {frame.line}" for frame in where
        )
    finally:
        sys.path.remove(str(folder))
        os.chdir(here)
        ran = sys.modules.pop(CANARY, None) is not None or (folder / "ran").exists()
    if ran and not case.code:
        return "it ran what the file names"
    if code not in (0, 1, 2):
        return f"it ended with {code}"
    if "Traceback" in err:
        return f"it printed a traceback: {err[-500:]}"
    if any(len(line) > 2000 for line in err.splitlines()):
        return f"a line has {max(map(len, err.splitlines()))} characters: {err[:300]}"
    if "\x1b" in err:
        return f"it printed a control character: {err[:300]!r}"
    if code == 2:
        said = [line for line in err.splitlines() if re.match(r"[A-Z]\w+: ", line)]
        if len(said) > 1 or not err.strip():
            return f"it says {len(said)} sentences: {err[:500]}"
        names = {
            "the prompt",
            "the rubric",
            "suite",
            path.name,
            *(part for part in Path(case.file).parts),
            path.parent.name,
        }
        if not any(name in err for name in names):
            return f"it does not name the file: {err[:400]}"
    return ""


@pytest.fixture(scope="session")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    here = Path.cwd()
    os.chdir(folder)
    try:
        examples(folder)
    finally:
        os.chdir(here)
    return folder


def _id(case):
    return f"{case.command.split(' --')[0][:40]} {case.file}"


def check(case, good, tmp_path, rounds, damages=tuple(DAMAGES)):
    if case.needs and not find_spec(case.needs):
        pytest.skip(f"needs {case.needs}")
    faults = []
    for number, damage in enumerate(damages * len(rounds)):
        seed = f"{case.seed} {rounds[number // len(damages)]} {damage.__name__}"
        fault = fault_of(case, damage, seed, good, tmp_path / f"{number}")
        shutil.rmtree(tmp_path / f"{number}", ignore_errors=True)
        if fault:
            faults.append(f"{damage.__name__}: {fault}")
    assert not faults, f"\n{case.command}, {case.file}:\n" + "\n".join(faults)


@pytest.mark.system
@pytest.mark.parametrize("case", CASES, ids=_id)
def test_a_damaged_file_ends_a_command_with_an_answer(case, good, tmp_path):
    half = CASES.index(case) % 2  # of the damages; the slow test has them all
    check(case, good, tmp_path, range(1), tuple(DAMAGES[half::2]))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=_id)
def test_many_damages_end_a_command_with_an_answer(case, good, tmp_path):
    check(case, good, tmp_path, range(1, 11))


@pytest.mark.system
@pytest.mark.parametrize("case", CASES, ids=_id)
def test_a_good_file_is_read(case, good, tmp_path, monkeypatch):
    """A bad example would be refused before what is damaged in it matters."""
    if case.needs and not find_spec(case.needs):
        pytest.skip(f"needs {case.needs}")
    _copy_named(case, good, tmp_path / "good")
    monkeypatch.chdir(tmp_path / "good")
    with limits():
        code, out, err = call(case.command.split())
    assert code != 2, (out, err)
