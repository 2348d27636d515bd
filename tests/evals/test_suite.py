"""Suites: what the files say, and that those that come with gem can be played."""

import json

import pytest

import gem
from gem.agents.random import RandomAgent
from gem.errors import BadArgument, GemError, MissingData, MissingExtra, UnknownEnv
from gem.evals import evaluate
from gem.evals.suite import Entry, known_suites, load_suite
from gem.rollout import Job, rollout

FILE = """
about = "two games"
[sampling]
n = 7
k = 2
seed = 5
temperature = 0
extra = {top_p = 0.5}
[limits]
turns = 9
tokens_per_episode = 100
min_coverage = 0.9
stop_at_width = 0.2
[agent]
name = "solver"
api = "responses"
timeout = 3
stream = true
[[environments]]
ids = ["game:GuessTheNumber-v0-easy", "game:Sudoku-v0"]
category = "games"
[[environments]]
id = "math:WordProblems-v0-hard"
kwargs = {largest = 30}
tools = ["python"]
wrappers = ["episode_tracking"]
n = 3
turns = 2
weight = 2
"""


def suite(tmp_path, text=FILE, **changes):
    (tmp_path / "mine.toml").write_text(text)
    return load_suite(str(tmp_path / "mine.toml"), **changes)


def test_a_file_says_what_is_played_and_how(tmp_path):
    found = suite(tmp_path)
    assert (found.name, found.about, found.seed, found.min_coverage) == ("mine", "two games", 5, 0.9)
    assert (found.agents, found.stop_at_width) == (("solver",), 0.2)
    settings = found.settings
    assert (settings.temperature, settings.api, settings.timeout_s) == (0.0, "responses", 3.0)
    assert (settings.extra, settings.stream, settings.send_reasoning) == ({"top_p": 0.5}, True, False)
    assert (
        suite(tmp_path, FILE.replace("temperature = 0", 'temperature = "none"')).settings.temperature
        == "none"
    )
    first, second, third = found.entries
    assert first == Entry("game:GuessTheNumber-v0-easy", "games", episodes=7, samples=2, turns=9, tokens=100)
    assert first.task == "game:GuessTheNumber-v0-easy"  # as the command line has it: stores go on
    assert second.env == "game:Sudoku-v0-easy"
    assert (third.episodes, third.samples, third.turns, third.weight) == (3, 2, 2, 2.0)
    assert third.label == "math:WordProblems-v0-hard(largest=30)+python+episode_tracking"
    assert [wrapper.name for wrapper in third.task.wrappers] == ["python_tool", "episode_tracking"]
    with gem.make(third.task) as env:
        assert env.tools


def test_flags_take_the_place_of_what_it_says(tmp_path):
    found = suite(tmp_path, n=2, k=1, turns=4, seed=1, temperature=0.5, tools=("python",), api=None)
    assert [(entry.episodes, entry.samples, entry.turns) for entry in found.entries] == [(2, 1, 4)] * 3
    assert (found.seed, found.settings.temperature, found.settings.api) == (1, 0.5, "responses")
    assert found.entries[0].tools == ("python",)
    assert found.entries[2].tools == ("python", "python")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("n = 7", "n = 7\nsamples = 3", "[sampling] has 'samples'"),
        ("temperature", "temperatur", "Did you mean 'temperature'"),
        ("[[environments]]\nids", "[[environment]]\nids", "Did you mean 'environments'"),
        ("kwargs", "kwarg", "number 2 has 'kwarg'. Did you mean 'kwargs'"),
        ("n = 7", "n = 1000000000000", "is 2000000000000; accepted: at most 10,000,000"),
        ("n = 7", 'n = "many"', "n is 'many'; accepted: a whole number"),
        ("n = 7", "n = 0", "episodes is 0"),
        ("stream = true", "stream = 1", "stream is 1; accepted: true or false"),
        ("temperature = 0", 'temperature = "hot"', "temperature is 'hot'; accepted: a number"),
        ("n = 7", "n = true", "n is True"),
        ("temperature = 0", f"temperature = {10**400}", "accepted: a number"),
        ("weight = 2", "weight = 0", "weight is 0"),
        ("largest = 30", "largest = 30}\nids = [", "TOML"),
        ('id = "math:WordProblems-v0-hard"', "", "needs one of id, ids and data"),
        ('tools = ["python"]', 'tools = ["pyton"]', "accepted: python, search"),
        ('tools = ["python"]', "tools = [3]", "a list of text"),
        ("game:Sudoku-v0", "game:Soduku-v0", "Did you mean"),
        ("episode_tracking", "episode_traking", "Did you mean"),
        ("largest", "largets", "Did you mean 'largest'"),
        ("game:Sudoku-v0", "game:GuessTheNumber-v0-easy", "is named twice"),
        ("min_coverage = 0.9", "min_coverage = 90", "min_coverage is 90"),
    ],
)
def test_a_mistake_is_told(old, new, said, tmp_path):
    assert old in FILE
    with pytest.raises(GemError) as caught:
        suite(tmp_path, FILE.replace(old, new, 1))
    assert said in str(caught.value)


def test_a_name_that_no_file_can_have_is_told(tmp_path):
    with pytest.raises(BadArgument, match="names a file that cannot be read: File name too long"):
        suite(tmp_path, f'[[environments]]\ndata = "{"x" * 5000}"\n')


def test_a_file_nested_without_end_is_told(tmp_path):
    with pytest.raises(BadArgument, match="is not valid TOML"):
        suite(tmp_path, f"a = {'[' * 100_000}")


@pytest.mark.parametrize("share", ["0", "1", "1.0"])
def test_a_coverage_of_nothing_and_of_all_can_be_asked_for(share, tmp_path):
    text = FILE.replace("min_coverage = 0.9", f"min_coverage = {share}")
    assert suite(tmp_path, text).min_coverage == float(share)


def test_an_empty_suite_and_one_that_is_not_there_are_told(tmp_path):
    with pytest.raises(BadArgument, match="has no environments"):
        suite(tmp_path, "")
    with pytest.raises(BadArgument, match="Did you mean 'baseline24'"):
        load_suite("baseline2")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(BadArgument, match="can be read"):
        load_suite(str(tmp_path / "bytes.toml"))


def test_the_agents_folder_is_looked_for_beside_the_file(tmp_path):
    (tmp_path / "run").mkdir()
    text = FILE.replace('name = "solver"', 'names = ["run", "random"]')
    assert suite(tmp_path, text).agents == (str(tmp_path / "run"), "random")


@pytest.mark.parametrize(
    "given", ["names = []", 'name = ""', 'names = ["random", ""]', 'name = "a"\nnames = ["b"]']
)
def test_no_agent_or_two_ways_to_name_one_are_refused(tmp_path, given):
    with pytest.raises(BadArgument, match="accepted: name, an agent, or names"):
        suite(tmp_path, FILE.replace('name = "solver"', given))


def test_every_suite_that_comes_with_gem_can_be_read():
    names = [
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
    assert list(known_suites()) == names
    for name in known_suites():
        found = load_suite(name)
        assert found.name == name
        assert found.about
        assert all(gem.spec(entry.env) for entry in found.entries)
        assert all(entry.category for entry in found.entries)
    with pytest.raises(UnknownEnv):
        load_suite("baseline24", wrappers=("nothing",))


BASELINE = load_suite("baseline24").entries


def test_the_baseline_has_24_environments_of_five_categories_and_more_than_one_turn():
    assert len(BASELINE) == 24
    assert len({entry.category for entry in BASELINE}) == 5
    turns = [gem.spec(entry.env).max_turns for entry in BASELINE]
    assert 0 < turns.count(1) < 24
    assert {tool for entry in BASELINE for tool in entry.tools} == {"python", "world_search"}


@pytest.mark.parametrize("entry", BASELINE, ids=lambda entry: entry.label)
def test_every_environment_of_the_baseline_is_made_and_played_here(entry):
    try:
        with gem.make(entry.task):
            pass
    except MissingExtra as missing:
        pytest.skip(str(missing))
    (episode,) = rollout([Job(entry.task, 1)], RandomAgent())
    assert episode.scored, episode.error
    if entry.tools:
        assert len(episode.task.wrappers) == len(entry.tools)


def test_all_of_a_data_set_is_each_task_once(tmp_path, monkeypatch):
    folder = tmp_path / "axon-rl" / "math-eval"
    folder.mkdir(parents=True)
    rows = [{"problem": f"{n} + 1?", "answer": str(n + 1)} for n in range(5)]
    (folder / "amc.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setenv("GEM_DATA", str(tmp_path))
    found = []
    seeds = Entry("eval:AMC").seeds(0)
    evaluate(RandomAgent(), "eval:AMC", on_episode=found.append)
    assert [episode.initial_info["task"] for episode in found] == ["0", "1", "2", "3", "4"]
    assert [episode.seed for episode in found] == seeds == Entry("eval:AMC", episodes="all").seeds(7)
    for seed in (0, 1):  # some rows: the beginning of a permutation that the seed draws
        some = [Entry("eval:AMC", episodes=n).seeds(seed) for n in range(1, 7)]
        assert all(len({*some[n]}) == n + 1 and some[n][:n] == some[n - 1] for n in range(1, 4))
        assert some[4] == some[5] == seeds  # all of them: in the order of the rows
    with pytest.raises(BadArgument, match="no data set"):
        Entry("game:Sudoku-v0-easy", episodes="all").seeds(0)
    assert len(Entry("math:Arithmetic-v0-easy").seeds(0)) == 200


def test_a_data_set_that_is_not_here_is_missing_data(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("GEM_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(MissingData):
        load_suite("mathematics").entries[0].seeds(0)
