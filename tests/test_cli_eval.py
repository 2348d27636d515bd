"""`gem-gym eval`: suites, samples, budgets, gates, reports, and going on; with a real server on loopback."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from gem import cli
from gem.cli.eval_progress import Progress
from gem.cli.terms import table
from gem.core import Env, Start, Step
from gem.errors import BadArgument
from gem.evals import load_suite
from gem.record import Episode, RunInfo, SeatEnd, StopReason, Turn, Verdict
from gem.registry import ENV_REGISTRY, register
from gem.rollout import EpisodeStore
from gem.specs import TaskRef
from gem.testing.stub_server import RawAnswer, StubServer, completion

EASY, HARD = "game:GuessTheNumber-v0-easy", "game:GuessTheNumber-v0-hard"
PRICES = "[models.m]\ninput = 10\noutput = 100\n"

pytest.importorskip("httpx")


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def counted(body):
    """Guess by the seed of the request; 100 tokens are read and 10 written."""
    text = rf"\boxed{{{body['seed'] % 10 + 1}}}"
    return {**completion(text), "usage": {"prompt_tokens": 100, "completion_tokens": 10}}


def run(*words):
    return cli.main(["eval", *map(str, words)])


def result(folder):
    return json.loads((folder / "result.json").read_text())


# -- environments, samples, tools, agents


def test_flags_and_positions_name_environments_and_samples_are_clustered(capsys):
    assert run(EASY, "--env", f"{HARD},qa:Facts-v0-easy", "-n", 4, "-k", 3, "--json", "--seed", 3) == 0
    streams = capsys.readouterr()
    found = json.loads(streams.out)
    assert streams.err == ""
    assert [row["env"] for row in found["results"]] == [EASY, HARD, "qa:Facts-v0-easy"]
    for row in found["results"]:
        assert (row["episodes"], row["samples"], row["success"]["clusters"]) == (12, 3, 4)
        assert set(row["passes"]) == {f"pass{sign}{k}" for sign in "@^" for k in (1, 2, 3)}
    assert found["agents"][0]["overall"]["environments"] == 3
    assert found["seed"] == 3
    assert found["command"][:2] == [EASY, "--env"]


def test_the_tables_have_the_passes_and_the_overall_row(capsys):
    assert run(EASY, HARD, "-n", 3, "-k", 2, "--agent", "solver") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["env", EASY, HARD, "overall", "env", EASY, HARD, "overall"]
    assert lines[4].split() == ["env", "pass@1", "pass@2", "pass^2"]
    assert lines[3].split()[1] == lines[7].split()[1] == "100.0%"


def test_all_rows_after_a_pilot_play_only_those_that_it_left(tmp_path):
    rows = "".join(f"What is {i}+{i}?,{2 * i}\n" for i in range(10))
    (tmp_path / "sums.csv").write_text(f"question,answer\n{rows}")
    for count, stored in (("5", 5), ("all", 10), ("7", 10)):
        flags = ("--data", tmp_path / "sums.csv", "--agent", "solver", "-n", count, "--out", tmp_path / "run")
        assert run(*flags) == 0
        with EpisodeStore(tmp_path / "run" / "episodes.jsonl", read_only=True) as store:
            assert len(store) == len({each.seed for each in store}) == stored


def test_seeds_beyond_the_rows_would_repeat_them_and_are_refused(tmp_path, capsys):
    data, suite = tmp_path / "sums.csv", tmp_path / "suite.toml"
    data.write_text("question,answer\nWhat is 1+1?,2\nWhat is 2+2?,4\n")
    suite.write_text(f'[[environments]]\ndata = "{data}"\nseeds = [0, 2]\n')
    for words in (("--data", data, "--seeds", "0,2"), (suite,)):
        assert run(*words, "--agent", "solver") == 2
        told = capsys.readouterr().err
        assert "seed 2 of data:math would repeat one of its 2 tasks; accepted: 0 to 1" in told
    assert run("--data", data, "--seeds", "0,1", "--agent", "solver") == 0


def test_the_bounds_of_success_count_what_a_budget_left_unplayed(tmp_path, capsys):
    def answer(asked):
        number = int(re.search(r"What is (\d+)", json.dumps(asked["messages"]))[1])
        usage = {"prompt_tokens": 90, "completion_tokens": 10}
        return {**completion(f"\\boxed{{{number * (number % 2)}}}"), "usage": usage}

    data = tmp_path / "same.csv"
    data.write_text("question,answer\n" + "".join(f"What is {i}?,{i}\n" for i in range(1, 9)))
    with StubServer(answer) as server:
        flags = ("--agent", f"openai:m@{server.base_url}", "--concurrency", "1", "--budget-tokens", "200")
        assert run("--data", data, *flags, "--out", tmp_path / "out") == 1
    assert re.search(r"12\.5% to 87\.5% .* 2/8, 6 not played", capsys.readouterr().out)
    assert "success is 12.5% to 87.5%" in (tmp_path / "out" / "report.md").read_text()


def test_the_listed_seeds_are_played_and_no_others(tmp_path, capsys):
    out = str(tmp_path / "out")
    assert run(EASY, "--agent", "random", "--seeds", "3,17,40-42", "--out", out) == 0
    with EpisodeStore(f"{out}/episodes.jsonl", read_only=True) as store:
        assert sorted(episode.seed for episode in store) == [3, 17, 40, 41, 42]
    file = tmp_path / "suite.toml"
    file.write_text(f'[sampling]\nn = 7\n[[environments]]\nid = "{EASY}"\nseeds = [5, 6]\n')
    assert [entry.seeds(0) for entry in load_suite(str(file)).entries] == [(5, 6)]
    assert [entry.seeds(0) for entry in load_suite(str(file), seeds=(9,)).entries] == [(9,)]
    for flags, told in (
        (["3-"], "accepted: whole numbers and spans"),
        (["-3"], "seeds"),
        (["9-3"], "'9-3'"),
        (["1-99999999"], "'1-99999999'"),
        (["3,3"], "listed twice"),
        (["3", "-n", "4"], "leave --episodes"),
        (["x"], "'x'"),
    ):
        capsys.readouterr()
        try:
            code = run(EASY, "--seeds", *flags)
        except SystemExit as end:
            code = end.code
        assert code == 2
        assert told in "".join(capsys.readouterr()), flags
    file.write_text(f'[[environments]]\nid = "{EASY}"\nn = 3\nseeds = [5, 6]\n')
    with pytest.raises(BadArgument, match="give one of them"):
        load_suite(str(file))


def test_tools_and_wrappers_are_put_around_environments(tmp_path):
    command = ["--env", "math:WordProblems-v0-easy", "--tools", "python", "--wrappers", "episode_tracking"]
    assert run(*command, "-n", 2, "--agent", "solver", "--out", tmp_path) == 0
    with EpisodeStore(tmp_path / "episodes.jsonl", read_only=True) as store:
        assert [wrapper.name for wrapper in store[0].task.wrappers] == ["python_tool", "episode_tracking"]
    # another wrapping is another task: nothing stored stands for it, and its figures are others
    bare = ["math:WordProblems-v0-easy", "-n", 2, "--agent", "solver", "--out", tmp_path]
    assert run(*bare) == cli.MISUSED
    (tmp_path / "result.json").unlink()
    assert run(*bare) == 0
    with EpisodeStore(tmp_path / "episodes.jsonl", read_only=True) as store:
        assert len(store) == 4


def test_a_function_of_a_file_is_a_tool_and_the_evaluation_goes_on_with_its_content(tmp_path, capsys):
    (tmp_path / "own.py").write_text(
        "from gem.tools import tool\n@tool\ndef double(n: int) -> int:\n    'Double it.'\n    return n\n"
    )
    flags = ["--agent", "random", "-n", 2, "--out", tmp_path / "run"]
    assert run(EASY, "--tools", f"{tmp_path}/own.py:double", *flags) == 0
    with EpisodeStore(tmp_path / "run" / "episodes.jsonl", read_only=True) as store:
        (wrapper,) = store[0].task.wrappers
        assert re.fullmatch(r"own\.py@[0-9a-f]{12}:double", wrapper.name)
        assert "double: Double it." in store[0].turns[0].observation
    (tmp_path / "own.py").unlink()
    assert run("--resume", "--out", tmp_path / "run") == 0
    (tmp_path / "own.py").write_text("def double(n): return 2 * n")
    capsys.readouterr()
    assert run(EASY, "--tools", f"{tmp_path}/own.py:double", *flags[:4]) == cli.MISUSED
    assert "one with @gem.tools.tool above it" in capsys.readouterr().err


@pytest.mark.parametrize("api", ["chat", "responses", "completions"])
def test_an_endpoint_is_asked_as_the_flags_say(api, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-1")
    with StubServer(r"\boxed{5}") as server:
        flags = ["--api", api, "--max-tokens", 9, "--api-key-env", "MY_KEY", "--concurrency", 2]
        flags += ["--temperature", "none", "--stream", "--extra", '{"top_p": 0.5}']
        assert run(EASY, "--agent", f"openai:m@{server.base_url}", "-n", 6, *flags) == 0
        assert server.most_at_once <= 2
        assert {headers["Authorization"] for headers in server.headers} == {"Bearer sk-1"}
        asked = {
            (request["top_p"], request["stream"], request.get("temperature")) for request in server.requests
        }
        assert asked == {(0.5, True, None)}
        limit = "max_output_tokens" if api == "responses" else "max_tokens"
        assert {request[limit] for request in server.requests} == {9}


def test_the_tokens_of_an_episode_are_limited(tmp_path):
    with StubServer(counted) as server:
        words = [EASY, "--agent", f"openai:m@{server.base_url}", "-n", 3, "--tokens-per-episode", 15]
        assert run(*words, "--out", tmp_path) == 0
    with EpisodeStore(tmp_path / "episodes.jsonl", read_only=True) as store:
        assert {len(episode.turns) for episode in store} <= {1, 2}
        assert StopReason.TOKEN_LIMIT in {episode.stop for episode in store}


def test_a_model_of_transformers_in_a_folder_is_an_agent(tmp_path, capsys):
    pytest.importorskip("transformers", exc_type=ImportError)
    from random_models import RENDERER, make_model

    make_model("llama").save_pretrained(tmp_path / "model")
    RENDERER.tokenizer.save_pretrained(tmp_path / "model")
    words = [EASY, "--agent", f"hf:{tmp_path / 'model'}", "-n", 2, "--max-tokens", 4, "--turns", 2]
    assert run(*words, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert (row["scored"], row["tokens"] > 0) == (2, True)
    assert row["agent"] == f"HuggingFaceAgent {tmp_path / 'model'}"


# -- budgets


@pytest.mark.system
def test_a_budget_ends_it_cleanly_and_a_greater_one_goes_on(tmp_path, capsys):
    (tmp_path / "prices.toml").write_text(PRICES)
    out = tmp_path / "out"
    with StubServer(counted) as server:
        words = [EASY, "--agent", f"openai:m@{server.base_url}", "-n", 60, "--out", out]
        words += ["--prices", tmp_path / "prices.toml"]
        assert run(*words, "--budget-usd", 0.1) == cli.FAILED  # 0.002 a turn
        told = capsys.readouterr()
        asked = len(server.requests)
        assert 30 <= asked <= 60  # some 50 turns; nearly 4 an episode
        (row,) = result(out)["results"]
        assert row["unplayed"] + row["scored"] == 60
        assert row["tokens"] == 110 * asked
        assert row["cost"] == pytest.approx(0.002 * asked)
        assert f"of $0.1; {row['unplayed']} episodes were not played" in told.err
        assert f"{row['scored']}/60, {row['unplayed']} not played" in told.out
        assert "to continue, raise the budget" in told.err

        assert run(*words, "--budget-usd", 0.1) == cli.FAILED  # what is stored is paid for and counts
        assert len(server.requests) <= asked + 4  # one episode more, where one still fits
        assert run(*words, "--budget-usd", 100) == 0
        with EpisodeStore(out / "episodes.jsonl", read_only=True) as store:
            assert len(store) == 60
            assert sum(len(episode.turns) for episode in store) == len(server.requests)  # nothing twice
    assert "not played" not in capsys.readouterr().out.splitlines()[-1]


def test_a_budget_of_nothing_plays_nothing_and_shows_what_is_stored(tmp_path, capsys):
    with StubServer(counted) as server:
        words = [EASY, "--agent", f"openai:m@{server.base_url}", "--out", tmp_path]
        assert run(*words, "-n", 5) == 0
        asked = len(server.requests)
        capsys.readouterr()
        assert run(*words, "-n", 9, "--budget-tokens", 0) == cli.FAILED
        assert len(server.requests) == asked
    assert "5/9, 4 not played" in capsys.readouterr().out


def test_without_a_folder_a_budget_holds_too(capsys):
    with StubServer(counted) as server:
        agent = f"openai:m@{server.base_url}"
        assert run(EASY, HARD, "--agent", agent, "-n", 50, "--budget-tokens", 2000) == cli.FAILED
        assert len(server.requests) * 110 <= 2000 + 4 * 7 * 110
    assert "2,000 tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tools", "{tmp}/none.py:lookup"], "tool "),
        (["--budget-usd", "1"], "budget_usd needs prices"),
        (["--budget-tokens", "-1"], "budget_tokens is -1"),
        (["--prices", "{tmp}/none.toml"], "cannot be read as a price file"),
        (["--prices", "{tmp}/prices.toml"], "no price of 'other'"),
        (["--gate", "succes>=1"], "Did you mean 'success'"),
        (["--gate", "success[game:Other]>=1"], "which is not played"),
        (["--gate", "pass@2>=1"], "needs 2 samples"),
        (["--gate", "cost<1"], "--prices"),
        (["--min-coverage", "95"], "min_coverage is 95"),
        (["--samples", "0"], "samples is 0"),
        (["--stop-at-width", "2"], "width is 2"),
        (["--tools", "pyton"], "accepted: python, search, world_search"),
        (["--wrappers", "nothing"], "no wrapper 'nothing'"),
        (["--resume"], "name its folder by --out FOLDER"),
        (["--resume", "--out", "{tmp}"], "holds no evaluation"),
        (["--retry-failed"], "name their folder by --out FOLDER"),
        (["--template", "smollm2"], "goes with the API 'completions'"),
        (["--timeout", "0"], "timeout is 0"),
        (["--temperature", "hot"], "temperature is 'hot'"),
        (["--extra", "[1]"], "accepted: a JSON object"),
        (["--extra", "{1}"], "which is not JSON"),
        (["--extra", '{"max_tokens": 9}'], "pass max_tokens (--max-tokens)"),
        (["--env", "baseline24"], "a suite is played alone"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(flags, said, tmp_path, capsys):
    (tmp_path / "prices.toml").write_text(PRICES)
    with StubServer(counted) as server:
        words = [word.replace("{tmp}", str(tmp_path)) for word in flags]
        assert run(EASY, "--agent", f"openai:other@{server.base_url}", *words) == cli.MISUSED
        assert server.requests == []
    assert said in capsys.readouterr().err


@pytest.mark.system
def test_an_environment_is_stopped_once_its_success_is_known_well_enough(tmp_path, capsys):
    words = [EASY, "-n", 2000, "--concurrency", 8, "--stop-at-width", 0.3, "--out", tmp_path]
    assert run(*words) == 0
    told = capsys.readouterr()
    (row,) = result(tmp_path)["results"]
    assert (row["episodes"], row["unplayed"], row["coverage"]) == (row["scored"], 0, 1.0)
    assert row["episodes"] < 300
    assert row["success"]["high"] - row["success"]["low"] <= 0.3 + 1e-9
    said = f"holds however often one looks; it is narrow enough after {row['episodes']} episodes"
    assert said in told.err
    assert said in (tmp_path / "report.md").read_text()
    assert run(*words) == 0
    assert capsys.readouterr().out == told.out


@pytest.mark.system
def test_returns_are_told_between_random_play_and_the_solver(tmp_path, capsys):
    words = [EASY, HARD, "--agent", "random", "--agent", "solver", "-n", 40, "--normalise"]
    assert run(*words, "--out", tmp_path) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[0].split()[-2:] == ["normalised", "verdicts"]
    found = {(row["name"], row["env"]): row["normalised"] for row in result(tmp_path)["results"]}
    for env in (EASY, HARD):
        assert found["random", env]["mean"] == 0
        assert found["solver", env]["mean"] == 1
        assert found["random", env]["low"] < 0 < found["random", env]["high"]
    overall = {each["agent"]: each["overall"]["normalised"]["mean"] for each in result(tmp_path)["agents"]}
    assert overall == {"random": 0, "solver": 1}
    assert "| normalised |" in (tmp_path / "report.md").read_text()
    for name in ("random", "solver"):
        with EpisodeStore(tmp_path / "references" / name / "episodes.jsonl", read_only=True) as store:
            assert len(store) == 80
    assert run(*words, "--out", tmp_path) == 0
    assert capsys.readouterr().out == told.out


def test_where_there_is_no_solver_nothing_is_normalised(capsys, monkeypatch):
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())
    register("t:Unsolved-v0", Unsolved)
    with StubServer("go") as server:
        words = ["t:Unsolved-v0", "--agent", f"openai:m@{server.base_url}", "-n", 3, "--normalise", "--json"]
        assert run(*words) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["normalised"] is None


# -- gates and reports


def test_gates_decide_the_exit_code_and_stand_in_the_reports(tmp_path, capsys):
    words = [EASY, HARD, "--agent", "solver", "-n", 6, "--out", tmp_path]
    assert run(*words, "--gate", "success>=0.9", "--gate", f"low(success[{EASY}])>=0.5") == 0
    assert run(*words, "--gate", "success>=0.9", "--gate", "turns<1") == cli.FAILED
    told = capsys.readouterr().err.splitlines()
    assert told[-2].startswith("gate passed: success>=0.9: overall: 1")
    assert told[-1].startswith("gate FAILED: turns<1: overall: ")
    found = result(tmp_path)
    assert [gate["passed"] for gate in found["gates"]] == [True, False]
    root = ElementTree.fromstring((tmp_path / "junit.xml").read_bytes())
    assert [suite.get("name") for suite in root] == [f"{EASY} solver", f"{HARD} solver", "overall solver"]
    assert (root.get("tests"), root.get("failures")) == ("4", "1")
    text = (tmp_path / "report.md").read_text()
    assert "**failed**: `turns<1`" in text
    assert f"gem-gym eval {EASY} {HARD} --agent solver --episodes 6 --out {tmp_path} --gate" in text


def test_under_the_coverage_no_headline_is_given(tmp_path, capsys):
    calls = []

    def answer(body):
        calls.append(body)
        return RawAnswer.error(400, "no") if len(body["messages"]) == 1 and len(calls) % 2 else r"\boxed{5}"

    with StubServer(answer) as server:
        words = [EASY, "--agent", f"openai:m@{server.base_url}", "-n", 10, "--concurrency", 1]
        code = run(*words, "--min-coverage", 0.95, "--gate", "success>=0", "--out", tmp_path)
    assert code == cli.FAILED
    told = capsys.readouterr()
    assert told.out.splitlines()[1].split()[1] == "withheld"
    assert re.search(r"no headline: coverage \d+\.0% is under 95\.0%: of 10 episodes \d+ without", told.err)
    assert "gate FAILED: success>=0: overall: no figure, the coverage of" in told.err
    assert result(tmp_path)["results"][0]["withheld"]


def test_a_password_in_an_address_is_written_nowhere(tmp_path, capsys):
    with StubServer(counted) as server:
        address = server.base_url.replace("http://", "http://me:hunter2@")
        words = [EASY, "--agent", f"openai:m@{address}", "-n", 2, "--out", tmp_path]
        assert run(*words) == 0
    for name in ("command.json", "result.json", "report.md"):
        assert "hunter2" not in (tmp_path / name).read_text()
    assert run("--resume", "--out", tmp_path) == cli.MISUSED
    assert "give the whole command again" in capsys.readouterr().err


# -- going on


def test_resume_goes_on_with_the_stored_command_and_what_is_added(tmp_path, capsys):
    assert run(EASY, "--agent", "solver", "-n", 3, "--out", tmp_path) == 0
    first = result(tmp_path)
    assert run("--resume", "--out", tmp_path) == 0
    assert result(tmp_path)["results"] == first["results"]
    assert run("--resume", "--out", tmp_path, "-n", 5) == 0
    found = result(tmp_path)
    assert found["results"][0]["episodes"] == 5
    words = [EASY, "--agent", "solver", "--episodes", "5", "--out", str(tmp_path)]
    assert found["command"] == words  # each flag once, as it counts
    capsys.readouterr()
    assert run("--resume", "--out", tmp_path, "--agent", "random") == cli.MISUSED  # refused, and forgotten
    assert run("--resume", "--out", tmp_path) == 0
    assert result(tmp_path)["results"][0]["name"] == "solver"


@pytest.mark.system
def test_what_the_server_broke_for_good_is_played_again_where_that_is_asked_for(tmp_path):
    broken = True

    def answer(body):
        if broken and body["seed"] % 4 == 0:
            return RawAnswer.error(400, "no")
        return counted(body)

    with StubServer(answer) as server:
        words = [EASY, "--agent", f"openai:m@{server.base_url}", "-n", 12, "--out", tmp_path]
        assert run(*words) == 0
        lost = 12 - result(tmp_path)["results"][0]["scored"]
        assert lost > 0
        broken, asked = False, len(server.requests)
        assert run(*words) == 0
        assert len(server.requests) == asked
        assert run(*words, "--retry-failed") == 0
        assert len(server.requests) > asked
    (row,) = result(tmp_path)["results"]
    assert (row["scored"], row["errors"]) == (12, {})
    with EpisodeStore(tmp_path / "episodes.jsonl", read_only=True) as store:
        assert len(store) == 12 + lost  # what broke stays on record


@pytest.mark.system
def test_what_was_killed_goes_on_and_pays_for_no_stored_episode_again(tmp_path):
    enough = threading.Event()

    def answer(body):
        if len(server.requests) > 60:
            enough.set()
        return counted(body)

    with StubServer(answer) as server:
        words = [EASY, "--agent", f"openai:m@{server.base_url}", "-n", "60", "--concurrency", "4"]
        command = [sys.executable, "-m", "gem", "eval", *words, "--out", str(tmp_path)]
        child = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert enough.wait(60)
        child.send_signal(signal.SIGKILL)
        child.wait()
        with EpisodeStore(tmp_path / "episodes.jsonl", read_only=True) as store:
            before = {episode.id: len(episode.turns) for episode in store}
        assert 0 < len(before) < 60
        asked = len(server.requests)
        assert run("--resume", "--out", tmp_path) == 0
        with EpisodeStore(tmp_path / "episodes.jsonl", read_only=True) as store:
            after = {episode.id: len(episode.turns) for episode in store}
        assert before.items() <= after.items()
        assert len(after) == 60
        assert len(server.requests) - asked == sum(after.values()) - sum(before.values())


def test_a_server_that_is_gone_ends_it_with_a_word(tmp_path, capsys):
    with StubServer(RawAnswer.error(401, "who are you?")) as server:
        assert run(EASY, "--agent", f"openai:m@{server.base_url}", "-n", 5, "--out", tmp_path) == cli.FAILED
        assert 1 <= len(server.requests) <= 5
    told = capsys.readouterr().err
    assert "cannot answer" in told
    assert "OPENAI_API_KEY, which is not set" in told
    assert "0 of 5 episodes are stored" in told
    assert "cannot answer" in result(tmp_path)["stopped"]


def test_no_report_of_an_earlier_evaluation_stands_for_one_that_did_not_end(tmp_path):
    def gates():
        root = ElementTree.fromstring((tmp_path / "junit.xml").read_bytes())
        return int(root.get("failures")), int(root.get("errors"))

    refused = False
    with StubServer(lambda body: RawAnswer.error(401, "no") if refused else counted(body)) as server:
        words = [EASY, "--agent", f"openai:m@{server.base_url}", "--out", tmp_path, "--gate", "success>=0"]
        assert run(*words, "-n", 3) == 0
        assert (gates(), result(tmp_path)["stopped"]) == ((0, 0), None)
        refused = True
        assert run(*words, "-n", 6) == cli.FAILED
        assert gates() == (1, 1)
        assert "cannot answer" in result(tmp_path)["stopped"]
        report = (tmp_path / "report.md").read_text()
        assert re.search(r"incomplete: .*; 3 of 6 episodes had ended", report)
        assert "|---|" not in report  # there is no figure yet
        refused = False
        assert run(*words, "-n", 6) == 0
        assert (gates(), result(tmp_path)["stopped"]) == ((0, 0), None)
        assert "incomplete: " not in (tmp_path / "report.md").read_text()


def test_the_report_of_what_is_being_played_says_so(tmp_path, monkeypatch):
    seen = []
    heard = Progress.hear

    def hear(self, episode):
        seen.append(result(tmp_path)["stopped"])
        heard(self, episode)

    monkeypatch.setattr(Progress, "hear", hear)
    assert run(EASY, HARD, "-n", 2, "--out", tmp_path) == 0
    assert seen == ["the evaluation has not finished"] * 4
    assert result(tmp_path)["stopped"] is None


# -- suites


def test_a_suite_is_played_with_its_rows_and_what_is_not_here_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GEM_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("datasets")
    (tmp_path / "s.toml").write_text(f"""
about = "three"
[sampling]
n = 4
[agent]
name = "solver"
[[environments]]
category = "easy"
id = "{EASY}"
[[environments]]
category = "hard"
id = "{HARD}"
n = 6
[[environments]]
category = "data"
id = "eval:AIME24"
n = "all"
""")
    assert run(tmp_path / "s.toml", "--out", tmp_path / "out") == 1
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines()] == [
        "env",
        EASY,
        HARD,
        "easy",
        "hard",
        "overall",
    ]
    assert "eval:AIME24: not here: " in told.err
    assert "1 of 3 environments are not here and in no figure" in told.err
    found = result(tmp_path / "out")
    assert found["suite"] == "s"
    assert [row["episodes"] for row in found["results"][:2]] == [4, 6]
    assert "missing" in found["results"][2]
    assert found["agents"][0]["overall"]["success"]["mean"] == 1
    assert "Not here: eval:AIME24" in (tmp_path / "out" / "report.md").read_text()
    assert run(tmp_path / "s.toml", "-n", 2, "--json") == 1
    assert json.loads(capsys.readouterr().out)["results"][1]["episodes"] == 2


class Unsolved(Env):
    """An environment without a solver."""

    def reset(self, seed=None):
        super().reset(seed)
        return Start("go", {})

    def step(self, action):
        return Step("", 1.0, True, False, {"success": True})


class Printing(Unsolved):
    """An environment that prints, and starts a program that prints."""

    def reset(self, seed=None):
        print("one")
        return super().reset(seed)

    def step(self, action):
        subprocess.run(["echo", "two"], check=True)
        return super().step(action)

    def sample_random_action(self):
        return "go"


def test_what_an_environment_prints_is_not_in_the_json(capfd, monkeypatch):
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())
    register("t:Printing-v0", Printing)
    assert run("t:Printing-v0", "-n", 1, "--json") == 0
    streams = capfd.readouterr()
    assert json.loads(streams.out)["results"][0]["episodes"] == 1
    assert streams.err == "one\ntwo\n"
    assert run("t:Printing-v0", "-n", 1) == 0
    assert capfd.readouterr().out.startswith("one\ntwo\n")


def test_a_solver_that_an_environment_of_a_suite_has_not_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())
    register("t:Unsolved-v0", Unsolved)
    (tmp_path / "s.toml").write_text(f'[[environments]]\nids = ["{EASY}", "t:Unsolved-v0"]\nn = 2\n')
    assert run(tmp_path / "s.toml", "--agent", "solver") == 1
    assert "t:Unsolved-v0: not here: " in capsys.readouterr().err
    assert run("t:Unsolved-v0", "--agent", "solver") == cli.MISUSED


def test_a_suite_of_which_nothing_is_here_fails(tmp_path, capsys, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("GEM_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert run("mathematics", "-n", 2) == cli.FAILED
    told = capsys.readouterr()
    assert "0.0%" not in told.out
    assert told.err.count(": not here: ") == 5


def test_what_was_measured_before_an_error_is_shown(capsys, monkeypatch):
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())
    register("t:Unsolved-v0", Unsolved)
    assert run(EASY, "t:Unsolved-v0", "--agent", "solver", "-n", 2) == cli.MISUSED
    told = capsys.readouterr()
    assert told.out.splitlines()[1].split()[-1] == "2/2"
    assert "NoSolver: " in told.err


def test_data_that_is_not_here_is_told_before_anything_is_played(tmp_path, capsys, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("GEM_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert run(EASY, "eval:AIME24", "-n", 2) == cli.MISUSED
    told = capsys.readouterr()
    assert "MissingData: " in told.err
    assert not told.out


def test_the_suites_that_come_with_gem_are_listed_and_mistakes_told(tmp_path, capsys):
    assert run("--suites") == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [
        "suite",
        "agentdojo",
        "agents",
        "babyai",
        "baseline24",
        "bfcl",
        "mathematics",
        "miniwob",
        "qa",
        "repo",
        "tau2",
    ]
    (tmp_path / "empty.toml").write_text("")
    assert run(tmp_path / "empty.toml") == cli.MISUSED
    assert "has no environments" in capsys.readouterr().err
    assert run("no.toml") == cli.MISUSED
    assert "can be read" in capsys.readouterr().err


# -- progress


class Lines(list):
    def __init__(self, terminal=False):
        self.terminal = terminal

    def write(self, text):
        self.append(text)

    def flush(self):
        pass

    def isatty(self):
        return self.terminal

    def __bool__(self):
        return True


def episode(won):
    end = SeatEnd(StopReason.SOLVED if won else StopReason.FAILED, True)
    turn = Turn("agent", "x", usage={"prompt_tokens": 1000, "completion_tokens": 100})
    found = Episode(TaskRef(EASY), RunInfo("r", "A", "m"), group=str(won), turns=[turn])
    found.ends, found.stop, found.verdict = {"agent": end}, end.stop, Verdict.SCORED
    return found


def test_progress_is_a_line_now_and_then_where_nobody_looks(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("gem.cli.eval_progress.perf_counter", lambda: now[0])
    lines = Lines()
    with Progress(stream=lines) as progress:
        progress.begin("\x1b[2Jenv", "me", 40)
        for number in range(20):
            now[0] += 1
            progress.hear(episode(number % 2 == 0))
    told = "".join(lines).splitlines()
    assert len(told) == 2  # after 10 and 20 seconds
    assert told[0].startswith("\\x1b[2Jenv, me, 10/40, success 50.0% (")
    assert told[0].endswith("10/10 verdicts, 1,100 tok/s, 0:30 left")


def test_progress_shows_no_success_where_no_episode_says_it():
    with Progress(quiet=True, stream=Lines()) as progress:
        progress.begin("env", "", 4)
        for stop in (StopReason.TURN_LIMIT, StopReason.ENDED):
            progress.hear(replace(episode(False), stop=stop))
        assert "success -" in progress._lines[0].cells(0.0, None)
        progress.hear(episode(True))
        assert progress._lines[0].cells(0.0, None)[2].startswith("success 50.0% (")


def test_progress_shows_what_the_requests_meet(monkeypatch):
    monkeypatch.setattr("gem.cli.eval_progress.describe_requests", lambda: "retries 3")
    lines = Lines(terminal=True)
    with Progress(stream=lines) as progress:
        progress.begin("env", "", 1)
        assert progress._lines[0].cells(0.0, None)[-1] == "retries 3"
        progress._live.refresh()
        progress.hear(episode(True))
        assert progress._lines[0].cells(0.0, None)[-1] == ""
    assert "retries 3" in "".join(lines)


def test_progress_is_silent_where_json_is_wanted():
    lines = Lines(terminal=True)
    with Progress(quiet=True, stream=lines) as progress:
        progress.begin("env", "", 1)
        progress.hear(episode(True))
    assert lines == []


def test_progress_on_a_terminal_has_a_line_for_each_environment():
    lines = Lines(terminal=True)
    with Progress(stream=lines) as progress:
        for name in ("one", "[b]"):
            progress.begin(name, "", 1)
            progress.hear(episode(True))
    text = "".join(lines)
    assert "one" in text
    assert "[b]" in text  # no markup


def test_a_flag_of_nothing_is_kept_in_the_command(tmp_path):
    """A budget of 0 is not the same as no budget, nor seed 0 the same as the suite's."""
    (tmp_path / "mine.toml").write_text(
        f'about = "x"\n[sampling]\nseed = 7\n[[environments]]\nid = "{EASY}"\n'
    )
    code = run(tmp_path / "mine.toml", "--seed", 0, "--min-coverage", 0, "-n", 2, "--out", tmp_path / "run")
    assert code == 0
    words = json.loads((tmp_path / "run" / "command.json").read_text())
    assert words[words.index("--seed") + 1] == "0"
    assert words[words.index("--min-coverage") + 1] == "0.0"
    assert run("--resume", "--out", tmp_path / "run") == 0
    assert result(tmp_path / "run")["seed"] == 0


@pytest.mark.parametrize(
    "spoil", [lambda line: line[:200] + b"}\n", lambda line: line.replace(b'"schema":2', b'"schema":3')]
)
def test_a_budget_leaves_out_what_lines_took_that_cannot_be_read(spoil, tmp_path, capsys):
    assert run(EASY, "-n", 3, "--out", tmp_path) == 0
    path = tmp_path / "episodes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], spoil(lines[-1])]))
    capsys.readouterr()
    assert run(EASY, "-n", 3, "--out", tmp_path, "--budget-tokens", 100) == 0
    assert "the budget does not count 1 damaged line" in capsys.readouterr().err
    assert result(tmp_path)["results"][0]["scored"] == 3


def test_a_server_that_counts_no_tokens_is_told_and_costs_no_zero(tmp_path, capsys):
    (tmp_path / "prices.toml").write_text(PRICES)
    with StubServer(lambda body: {**counted(body), "usage": None}) as server:
        words = [
            EASY,
            "--agent",
            f"openai:m@{server.base_url}",
            "-n",
            2,
            "--prices",
            tmp_path / "prices.toml",
        ]
        words += ["--budget-tokens", 100, "--gate", "cost<=1", "--out", tmp_path / "run"]
        assert run(*words) == cli.FAILED
        turns = len(server.requests)
    told = f"the tokens of {turns} turns are not known"
    assert (
        f"{told}, or only in part; what is missing is in no figure and not in the budget"
        in capsys.readouterr().err
    )
    assert result(tmp_path / "run")["results"][0]["cost"] is None
    assert told in (tmp_path / "run" / "report.md").read_text()


def test_the_figures_of_seats_are_withheld_with_the_others(tmp_path, capsys):
    with StubServer(counted) as server:
        words = ["multi:KuhnPoker-v0", "--agent", f"openai:m@{server.base_url}", "--out", tmp_path]
        words += ["--min-coverage", 0.9]
        assert run(*words, "-n", 4) == 0
        assert "withheld" not in capsys.readouterr().out
        assert run(*words, "-n", 8, "--budget-tokens", 1) == cli.FAILED  # four are not played
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:4]]
    assert [(row[0], row.count("withheld")) for row in rows] == [
        ("multi:KuhnPoker-v0", 2),
        ("player_0", 2),
        ("player_1", 2),
    ]


def test_a_gate_that_is_given_again_is_the_same_gate(tmp_path):
    assert run("--env", f"{EASY}, {HARD}", "-n", 2, "--out", tmp_path, "--gate", "success>=0") == 0
    assert run("--resume", "--out", tmp_path, "--gate", "success>=0", "--gate", "turns>0") == 0
    assert [each["gate"] for each in result(tmp_path)["gates"]] == ["success>=0", "turns>0"]


def test_no_evaluation_is_written_into_a_training_run_that_has_no_checkpoint_yet(tmp_path, capsys):
    (tmp_path / "metrics.jsonl").touch()
    assert run(EASY, "-n", 2, "--out", tmp_path) == cli.MISUSED
    assert "holds a training run" in capsys.readouterr().err


def test_help_joins_the_lines_of_a_docstring(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        cli.main(["eval", "--help"])
    assert "smollm2 or another name of" in capsys.readouterr().out


def test_a_split_is_that_of_the_environment_or_refused(capsys):
    assert cli.main(["eval", "game:Sudoku-v0-easy", "--split", "test"]) == 2
    assert "game:Sudoku-v0-easy has no split 'test'; it has none." in capsys.readouterr().err
    assert cli.main(["eval", "minigrid:FourRooms-v0", "--split", "dev"]) == 2
    assert "has no split 'dev'; accepted: train, test." in capsys.readouterr().err
    for flag in (["--split", "test"], ["--exclude", "disputed"]):
        assert cli.main(["eval", "baseline24", *flag]) == 2
        assert "leave --split and --exclude out" in capsys.readouterr().err
    assert cli.main(["eval", EASY, "--exclude", "disputed"]) == 2
    assert "exclude" in capsys.readouterr().err
    assert cli.main(["eval", "--data", "q.csv", "--exclude", "disputed"]) == 2
    assert "with --data leave it out" in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [True, False])
def test_the_latency_and_retries_of_an_endpoint_stand_below_the_figures(
    terminal, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("COLUMNS", "80")
    with StubServer("x", [RawAnswer(429, headers={"Retry-After": "0.001"})]) as server:
        agents = ["--agent", f"openai:m@{server.base_url}", "--agent", "random"]
        monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
        assert run(EASY, "game:Wordle-v0-easy", "-n", 3, *agents, "--out", tmp_path) == 0
    lines = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert not terminal or max(map(len, lines)) <= 80
    heads = [line.split() for line in lines].index(["agent", "answers", "p50", "p95", "retries"])
    name, answers, *_, retries = lines[heads + 1 + terminal].split()  # a terminal has a rule between them
    assert (name, answers, retries) == (f"openai:m@{server.base_url}", "6", "1")
    latency = [each["latency"] for each in json.loads((tmp_path / "result.json").read_text())["agents"]]
    assert (latency[0]["answers"], latency[0]["retries"]) == (6, 1)
    assert 0 < latency[0]["p50_s"] <= latency[0]["p95_s"]
    assert latency[1]["retries"] == 0
    assert "; 1 retries." in (tmp_path / "report.md").read_text()


def test_a_table_that_is_too_wide_for_a_terminal_stands_below_its_keys(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    table("env", "agent", "one", "two", "three", rows=[("e" * 30, "a", "1" * 9, "2" * 9, "3")], keys=2)
    assert capsys.readouterr().out.splitlines() == [
        "  one        two",
        f"{'e' * 30}, a",
        "  111111111  222222222",
        "  three",
        f"{'e' * 30}, a",
        "  3",
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_no_cell_of_a_table_steers_the_terminal_or_begins_a_line(capsys, monkeypatch, terminal):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "dumb")
    table("env", "success", rows=[("q\x1b[2J\x9b\nb.csv", "100%")])
    out = capsys.readouterr().out
    assert r"q\x1b[2J\x9b\nb.csv" in out
    assert all(char.isprintable() or char == "\n" for char in out)
