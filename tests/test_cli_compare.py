"""``gem-gym compare`` and ``gem-gym power`` on stored runs."""

import json
import math
import sys
from types import SimpleNamespace

import pytest

from gem.cli import main
from gem.errors import install_command
from gem.evals import picture
from gem.record import Episode, RunInfo, SeatEnd, StopReason, Turn, Verdict
from gem.rollout import EpisodeStore
from gem.specs import TaskRef
from gem.statistics import Interval

ENDS = {"w": StopReason.SOLVED, "l": StopReason.FAILED, "-": StopReason.ERROR}


@pytest.fixture
def store(tmp_path):
    """Write a run: by environment, how its tasks ended (w, l, or - for none), by sample."""

    def write(name, ends, samples=1, address=""):
        (tmp_path / name).mkdir()
        run = RunInfo(name, "OpenAIAgent", f"{name} \x1b[1m$x^2$", address=address)
        with EpisodeStore(tmp_path / name / "episodes.jsonl") as episodes:
            for spec, told in ends.items():
                for number, end in enumerate(told):
                    stop = ENDS[end]
                    episodes.append(
                        Episode(
                            TaskRef(spec, {}, seed=number // samples),
                            run,
                            f"{spec}{number // samples}",
                            sample=number % samples,
                            turns=[Turn("agent", "", "", reward=float(end == "w"))],
                            ends={"agent": SeatEnd(stop, terminated=True)},
                            stop=stop,
                            verdict=Verdict.NONE if end == "-" else Verdict.SCORED,
                        )
                    )
        return str(tmp_path / name)

    return write


def said(capsys, *args):
    code = main([*map(str, args)])
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def test_two_runs_are_compared_in_tables_and_a_sentence(store, capsys):
    a, b = store("a", {"test:X": "l" * 30 + "w" * 10}), store("b", {"test:X": "l" * 10 + "w" * 30})
    code, out, err = said(capsys, "compare", a, b)
    assert (code, err) == (0, "")
    assert out.splitlines()[3:] == [
        "env     A success  B success  B - A                   coverage",
        "test:X  25.0%      75.0%      +50.0 (+35.2 to +64.8)  100.0%",
        "",
        "env     tasks  pairs  bootstrap       A : B alone  p",
        "test:X  40     40     +34.3 to +65.7  0 : 20       <0.001",
        "",
        "B is better, by 50.0 points",
    ]
    assert "\x1b" not in out


@pytest.mark.parametrize(("other", "there"), [("http://b/v1", " at http://b/v1"), ("http://a/v1", "")])
def test_runs_at_two_addresses_are_told_apart(other, there, store, capsys):
    a, b = (store(name, {"test:X": "wl"}, address=at) for name, at in (("a", "http://a/v1"), ("b", other)))
    _, out, _ = said(capsys, "compare", a, b)
    assert out.splitlines()[1].endswith(f"$x^2${there}")
    _, out, _ = said(capsys, "compare", a, b, "--json")
    assert json.loads(out)["B"]["address"] == other


def test_several_environments_have_a_mean_and_corrected_p_values(store, capsys):
    a = store("a", {"test:X": "l" * 9 + "w", "test:Y": "wl" * 10})
    b = store("b", {"test:X": "w" * 10, "test:Y": "lw" * 10})
    code, out, _ = said(capsys, "compare", a, b)
    first, second, verdicts = (part.splitlines() for part in out.split("\n\n")[1:])
    assert code == 0
    assert [line.split()[0] for line in first] == ["env", "test:X", "test:Y", "all"]
    assert second[0].endswith("p      Holm")
    assert second[1].endswith("0.004  0.008")
    assert verdicts[:2] == [
        "test:X: B is better, by 90.0 points",
        "test:Y: no difference shown; smallest that could be seen: 68.3 points",
    ]
    assert verdicts[2].startswith("all: B is better, by 45.0")


def test_a_bound_that_few_tasks_leave_open_is_a_word(store, capsys):
    a, b = store("a", {"test:X": "l" * 40}), store("b", {"test:X": "l" * 38 + "ww"})
    code, out, _ = said(capsys, "compare", a, b)
    assert code == 0
    assert " to none  0 : 2" in out
    assert "inf" not in out


def test_a_training_run_is_no_run_to_compare(store, capsys, tmp_path):
    a, b, c = (store(name, {"test:X": "wl"}) for name in ("a", "b", "c c"))
    for each, kwargs in ((a, {}), (c, {"size": 3})):
        config = {
            "env": "test:X",
            "env_kwargs": kwargs,
            "environments": [],
            "tools": ["python"],
            "wrappers": [],
        }
        (tmp_path / each / "config.json").write_text(json.dumps(config))
        (tmp_path / each / "metrics.jsonl").write_text("")
    code, out, err = said(capsys, "compare", f"{a}/episodes.jsonl", b)
    assert (code, out) == (2, "")
    assert err.splitlines()[1:] == [
        f"  gem-gym eval test:X --tools python --agent {a} --out {a}-eval",
        f"  gem-gym compare {a}-eval {b}",
    ]
    err = said(capsys, "compare", a, c)[2]
    assert f"{a} and {c} are training runs" in err
    assert err.splitlines()[2:] == [
        f"  gem-gym eval SUITE.toml --agent '{c}' --out '{c}-eval'",
        f"  gem-gym compare {a}-eval '{c}-eval'",
        f"  gem-gym report {a} '{c}'",
    ]
    assert said(capsys, "power", a)[2].splitlines()[-1] == f"  gem-gym power {a}-eval"


def test_little_coverage_withholds_the_headline(store, capsys):
    a, b = store("a", {"test:X": "w" * 20}), store("b", {"test:X": "l" * 17 + "---"})
    code, out, _ = said(capsys, "compare", a, b)
    assert code == 1
    assert "85.0%" in out
    assert "17     17/20  20 : 17       -100.0 to -85.0" in out
    assert out.splitlines()[-1] == (
        "no headline: coverage is 85.0%, 17 of 20 pairs (success not known: 3 of B); 95% is asked for"
    )
    assert said(capsys, "compare", a, b, "--min-coverage", "0.8")[0] == 0


def test_returns_and_json(store, capsys):
    a, b = store("a", {"test:X": "lw" * 10}), store("b", {"test:X": "w" * 20})
    assert "+0.500 (+0." in said(capsys, "compare", a, b, "--metric", "return")[1]
    plain = json.loads(said(capsys, "compare", a, b, "--json")[1])
    assert plain["A"]["run"] == a
    assert plain["overall"]["headline"] == "B is better, by 50.0 points"
    assert plain["environments"][0]["won"] == 10


def test_a_pull_request_is_told_what_was_lost(store, capsys):
    a, b = (
        store("a", {"test:X|`<b>": "w" * 30 + "l" * 10}),
        store("b", {"test:X|`<b>": "l" * 28 + "w" * 3 + "l" * 9}),
    )
    code, out, err = said(capsys, "compare", a, b, "--markdown")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "**A is better, by 67.5 points**"
    worse = lines.index("### Worse in B: 28")
    assert lines[worse + 2] == "| environment | seed | sample | A | B | episode of A | episode of B |"
    rows = lines[worse + 4 : worse + 4 + 25]
    assert all(row.startswith("| test:X\\|\\`\\<b\\> | ") and row.count(" | ") == 6 for row in rows)
    assert "And 3 more: `--json` has all." in lines
    assert "### Better in B: 1" in lines
    found = json.loads(said(capsys, "compare", a, b, "--json")[1])["changes"]
    assert [(each["seed"], each["a"], each["b"]) for each in found] == [
        *((i, 1, 0) for i in range(28)),
        (30, 0, 1),
    ]
    with EpisodeStore(f"{b}/episodes.jsonl", read_only=True) as episodes:
        ids = [episode.id for episode in episodes]
    assert found[0]["b_episode"] == ids[0]
    assert said(capsys, "compare", a, b, "--not-worse")[0] == 1
    assert said(capsys, "compare", b, a, "--not-worse")[0] == 0
    assert said(capsys, "compare", a, b, "--json", "--markdown")[0] == 2


def test_what_cannot_be_compared_is_told(store, capsys, tmp_path):
    a, b = store("a", {"test:X": "w"}), store("b", {"test:Y": "w"})
    code, _, err = said(capsys, "compare", a, b)
    assert code == 2
    assert (
        "the runs have no pairs, because they share no environment. A holds 1 samples of 1 tasks of test:X"
        in err
    )
    assert said(capsys, "compare", a, tmp_path / "none")[0] == 2
    assert (
        "accepted: a file that ends in .png, .svg, .pdf"
        in said(capsys, "compare", a, a, "--picture", "x.gif")[2]
    )


def test_damage_and_what_one_run_alone_holds_are_warned_of(store, capsys):
    a, b = store("a", {"test:X": "wl", "test:Z": "w"}), store("b", {"test:X": "lw"})
    with open(f"{b}/episodes.jsonl", "ab") as file:
        file.write(b'{"schema":2,"job":7}\n')
    code, out, err = said(capsys, "compare", a, b, "--not-worse")
    assert (code, out.splitlines()[-1]) == (1, "all: no headline: B lacks test:Z")
    assert "1 damaged line is left out" in err
    assert "only one run holds test:Z" in err


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_picture_shows_each_environment(store, capsys, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    ends = {r"test:$\frac{X$ <b>&": "l" * 20, "test:Y": "-" * 10 + "w" * 10, "test:Z" + "z" * 200: "w"}
    a = store("a", ends)
    b = store("b", {name: told.replace("l", "w") for name, told in ends.items()})
    file = tmp_path / f"picture.{suffix}"
    code, out, _ = said(capsys, "compare", a, b, "--picture", file)
    assert code == 1
    assert f"the picture is in {file}" in out
    beginning = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert file.read_bytes().startswith(beginning)
    first = file.read_bytes()
    if suffix == "svg":
        said(capsys, "compare", a, b, "--picture", file)
        assert b"<b>" not in first


@pytest.mark.parametrize("several", [False, True])
def test_in_a_picture_only_the_mean_of_several_environments_is_bold(
    several, store, capsys, tmp_path, monkeypatch
):
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr(
        picture, "_draw_row", lambda axes, place, row, scale, bold: drawn.append((place, bold))
    )
    ends = {"test:X": "l" * 20, **({"test:Y": "w" * 20} if several else {})}
    said(capsys, "compare", store("a", ends), store("b", ends), "--picture", tmp_path / "x.png")
    assert drawn == ([(0, False), (1, False), (2, True)] if several else [(0, False)])


@pytest.mark.parametrize("metric", ["success", "return"])
def test_a_row_of_a_picture_is_a_point_in_its_interval(metric):
    scale = 100.0 if metric == "success" else 1.0
    drawn = []
    axes = SimpleNamespace(plot=lambda x, y, **style: drawn.append((x, y, style["color"], style["alpha"])))
    row = SimpleNamespace(difference=Interval(0.2, -0.1, 0.5, 9, 9), better=None, withheld="")
    grey = picture.COLOURS[None]
    picture._draw_row(axes, 3, row, scale, bold=False)
    assert drawn == [([-0.1 * scale, 0.5 * scale], [3, 3], grey, 1.0), ([0.2 * scale], [3], grey, 1.0)]
    drawn.clear()
    row.difference, row.better, row.withheld = Interval(0.2, -math.inf, math.inf, 1, 1), "B", "why"
    picture._draw_row(axes, 4, row, scale, bold=True)
    assert drawn == [([0.2 * scale], [4], picture.COLOURS["B"], 0.35)]
    drawn.clear()
    row.difference = None
    picture._draw_row(axes, 5, row, scale, bold=True)
    assert drawn == []


def test_a_picture_that_cannot_be_written_or_drawn_is_told(store, capsys, tmp_path, monkeypatch):
    a = store("a", {"test:X": "wl"})
    code, _, err = said(capsys, "compare", a, a, "--picture", tmp_path / "none" / "x.png")
    assert code == 2
    assert "cannot be written" in err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = said(capsys, "compare", a, a, "--picture", "x.png")
    assert (code, out) == (2, "")
    assert install_command("train") in err


def test_power_of_a_run_splits_its_noise(store, capsys):
    a = store("a", {"test:X": "wwll" * 10 + "wlwl" * 10}, samples=2)
    code, out, _ = said(capsys, "power", a)
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert lines[0] == ["env", "tasks", "samples", "success", "between", "within", "coverage"]
    # Within: 20 tasks of variance 0.5 and 20 of none: 0.25; between: what is left of 0.1282 * 2.
    assert lines[1] == ["test:X", "40", "2", "50.0%", "0.0032", "0.2500", "100.0%"]
    assert [line[1] for line in lines[6:]] == ["10", "20", "40", "80", "160"]


def test_power_of_two_runs_measures_their_differences(store, capsys):
    a, b = store("a", {"test:X": "wl" * 30}), store("b", {"test:X": "wl" * 29 + "ww"})
    _, out, _ = said(capsys, "power", a, b, "--json")
    found = json.loads(out)
    assert [own["mean"] for own in found["noise"][0]["own"]] == [0.5, pytest.approx(31 / 60)]
    assert all(floor["paired"] < floor["unpaired"] / 2 for floor in found["floors"][2:])


def test_power_of_returns_that_are_rates_is_plain_json(store, capsys):
    a, b = store("a", {"test:X": "wwlwl"}), store("b", {"test:X": "llwwl"})
    _, out, _ = said(capsys, "power", a, b, "--metric", "return", "--json")
    assert json.loads(out)["floors"][0]["paired"] is None
    assert "Infinity" not in out


def test_power_of_a_plan_needs_no_run(capsys):
    code, out, _ = said(capsys, "power", "-n", "200", "-k", "4", "--rate", "0.6", "--within", "0.1")
    assert code == 0
    assert "plan  200    4        2.9             11.5      9.1" in out.splitlines()
    assert "the worst case is assumed" in said(capsys, "power", "-n", "200", "-k", "4", "--rate", "0.6")[1]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], "name a run, or give -n"),
        (["-n", "20"], "name a run, or give -n"),
        (["-n", "20", "--rate", "2"], "rate is 2.0"),
        (["-n", "20", "--rate", "0.5", "--within", "0.3"], "within is 0.3"),
        (["-n", "0", "--rate", "0.5"], "tasks is 0; accepted: 2 or more"),
        (["-n", "20", "--rate", "0.5", "--metric", "return"], "name a run"),
        (["a", "b", "c"], "3 runs were named"),
        (["a", "--rate", "0.5"], "leave --rate and --within out"),
    ],
)
def test_power_refuses_what_it_cannot_answer(capsys, args, told):
    code, _, err = said(capsys, "power", *args)
    assert code == 2
    assert told in err


def test_a_floor_that_no_two_rates_reach_is_none(store, capsys):
    code, out, _ = said(capsys, "power", "-n", 2, "--rate", 0.5)
    rows = [line.split() for line in out.splitlines() if line.startswith("plan")]
    assert code == 0
    assert [row[1:] for row in rows] == [
        ["2", "1", "35.4", "-", "-"],
        ["4", "1", "25.0", "-", "-"],
        ["8", "1", "17.7", "-", "-"],  # more than from 50% to 0
    ]


def test_power_warns_of_damage_and_names_the_return(store, capsys):
    run = store("a", {"test:X": "wl"})
    with open(f"{run}/episodes.jsonl", "ab") as file:
        file.write(b'{"schema":2,"job":7}\n{"schema":2,"job":8}\n')
    assert "2 damaged lines are left out" in said(capsys, "power", run)[2]
    assert "--metric return" in said(capsys, "power", store("b", {"test:X": "--"}))[2]


def test_power_names_what_it_leaves_out(store, capsys):
    run = store("a", {"test:X": "wlwlwlwl", "test:Y": "w"})
    _, out, err = said(capsys, "power", run)
    assert "test:Y" not in out
    assert "warning: test:Y is left out, also of `all`: fewer than two tasks with a success." in err


def test_a_cost_of_which_a_part_is_unknown_is_no_sum(tmp_path, capsys):
    counted = {"prompt_tokens": 90, "completion_tokens": 10}
    for name, usages, seconds in (("one", [counted] * 3, [1.5, None, 2]), ("two", [counted, None, None], [])):
        (tmp_path / name).mkdir()
        with EpisodeStore(tmp_path / name / "episodes.jsonl") as episodes:
            for seed, usage in enumerate(usages):
                run = RunInfo(name, "program:x", "m")
                episode = Episode(TaskRef("e", {}, seed=seed), run, str(seed), stop=ENDS["w"])
                episode.turns = [Turn("agent", "", "", reward=1.0, usage=usage)]
                info = {"program": {"cpu_s": seconds[seed]}} if seconds else {}
                episode.ends = {"agent": SeatEnd(ENDS["w"], terminated=True, info=info)}
                episode.verdict = Verdict.SCORED
                episodes.append(episode)
    main(["compare", str(tmp_path / "one"), str(tmp_path / "two")])
    told = capsys.readouterr()
    table = told.out.split("\n\n")[-1].splitlines()
    assert [line.split() for line in table[1:]] == [
        ["A", "3", "3", "300", "100", "-", "-"],
        ["B", "3", "3", "-", "-", "-", "-"],
    ]
    assert "the CPU seconds of 1 of 3 samples of A are unknown." in told.err
    assert "the tokens of 2 of 3 samples of B are unknown." in told.err
    assert "CPU seconds of 3" not in told.err


def test_programs_are_compared_by_what_a_solved_sample_cost(tmp_path, capsys):
    ends = {"one": "wwl-", "two": "wlwl"}
    for name, told in ends.items():
        (tmp_path / name).mkdir()
        run = RunInfo(name, f"program:{name}", "m")
        with EpisodeStore(tmp_path / name / "episodes.jsonl") as episodes:
            for seed, end in enumerate(told):
                usage = {"prompt_tokens": 900 + seed, "completion_tokens": 100}
                info = {"program": {"cpu_s": 1.5}} if name == "one" else {}
                episode = Episode(TaskRef("e", {}, seed=seed), run, str(seed), stop=ENDS[end])
                episode.turns = [Turn("agent", "", "", reward=float(end == "w"), usage=usage)]
                episode.ends = {"agent": SeatEnd(ENDS[end], terminated=True, info=info)}
                episode.verdict = Verdict.NONE if end == "-" else Verdict.SCORED
                episodes.append(episode)
    main(["compare", str(tmp_path / "one"), str(tmp_path / "two"), "--min-coverage", "0.5"])
    table = capsys.readouterr().out.split("\n\n")[-1].splitlines()
    assert [line.split() for line in table[1:]] == [
        ["A", "3", "2", "3,003", "1,502", "4.5", "2.2"],
        ["B", "3", "2", "3,003", "1,502", "-", "-"],
    ]
    main(["compare", str(tmp_path / "one"), str(tmp_path / "two"), "--json"])
    costs = json.loads(capsys.readouterr().out)["costs"]
    known = {"tokens_unknown": 0, "cpu_s_unknown": 0}
    assert costs["A"] == {"samples": 3, "solved": 2, "tokens": 3003, "usd": None, "cpu_s": 4.5, **known}
    (tmp_path / "prices.toml").write_text("[models.m]\ninput = 1.0\noutput = 10.0\n")
    words = ["compare", str(tmp_path / "one"), str(tmp_path / "two"), "--min-coverage", "0.5", "--prices"]
    main([*words, str(tmp_path / "prices.toml")])
    table = capsys.readouterr().out.split("\n\n")[-1].splitlines()
    assert table[1].split() == ["A", "3", "2", "3,003", "1,502", "$0.0057", "$0.0029", "4.5", "2.2"]
    (tmp_path / "prices.toml").write_text("[models.x]\ninput = 1.0\noutput = 10.0\n")
    assert main([*words, str(tmp_path / "prices.toml")]) == 2
    assert "has no price of 'm'" in capsys.readouterr().err
