"""Task folders of Harbor by id: ``harbor:PATH``."""

import json
from dataclasses import replace

import pytest
from harbor_folders import named, write_task

import gem
from gem.cli import main
from gem.envs.terminal.task_set import find_tasks
from gem.errors import BadArgument, MissingData, NoSolver, NoVerdict
from gem.evals.instances import find_seeds
from gem.evals.suite import Entry, load_suite
from gem.registry import Maker, task_of
from gem.rollout import EpisodeStore
from gem.testing import audit_env

STEPS = '[[steps]]\nname = "one"\n'


@pytest.fixture
def three(tmp_path):
    for name, level in (("b", "hard"), ("a", "easy"), ("c", "medium")):
        write_task(tmp_path / "tasks" / name, **{"task.toml": named(name, level)})
    (tmp_path / "tasks" / "notes").mkdir()
    return tmp_path / "tasks"


def test_a_seed_chooses_the_task_and_info_has_its_name_and_difficulty(shell, three):
    with gem.make(f"harbor:{three}") as env:
        chosen = [env.reset(seed=seed).info for seed in range(4)]
        assert [(info["task"], info["difficulty"]) for info in chosen] == [
            *(("gem/a", "easy"), ("gem/b", "hard"), ("gem/c", "medium"), ("gem/a", "easy"))
        ]
        env.step(env.solve())
        assert env.step("<submit/>").reward == 1.0
        assert gem.make(task_of(env)).reset(seed=1).info["task"] == "gem/b"
    assert [*find_seeds(Maker(f"harbor:{three}"), None, 0)] == [0, 1, 2]
    assert len(find_seeds(Maker(f"harbor:{three}"), 2, 0)) == 2


def test_one_folder_is_named_by_its_folder_where_it_has_no_name(shell, tmp_path):
    write_task(tmp_path / "sum", **{"task.toml": "[agent]\ntimeout_sec = 90.0\n"})
    with gem.make(f"harbor:{tmp_path / 'sum'}") as env:
        start = env.reset(seed=5)
        assert start.info["task"] == "sum"
        assert "difficulty" not in start.info
        assert "those of all together 90 s" in start.obs


@pytest.mark.parametrize(("leave_out", "claim"), [((), "oracle"), (("b",), "none"), (("a", "b"), "none")])
def test_a_solver_is_claimed_where_each_task_has_a_solution(tmp_path, leave_out, claim):
    for name in ("a", "b"):
        files = {"solution/solve.sh": None} if name in leave_out else {}
        write_task(tmp_path / name, **files)
    assert gem.spec(f"harbor:{tmp_path}").solver == claim


def test_a_task_without_a_solution_has_no_solver(shell, tmp_path):
    write_task(tmp_path, **{"solution/solve.sh": None})
    with gem.make(f"harbor:{tmp_path}") as env:
        env.reset(seed=0)
        with pytest.raises(NoSolver, match="no solution"):
            env.solve()


def test_what_is_no_folder_of_tasks_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    for name, error, words in (
        ("nowhere", MissingData, "no folder or registry"),
        ("x" * 5000, MissingData, "no folder or registry"),
        ("\0", MissingData, "no folder or registry"),
        ("empty", BadArgument, r"no task\.toml"),
        ("empty#set", BadArgument, "data set of a registry"),
    ):
        with pytest.raises(error, match=words):
            gem.make(f"harbor:{tmp_path / name}")
    assert gem.spec("harbor:nowhere").solver == "none"
    with pytest.raises(BadArgument, match=r"an id has no blanks; .* as harbor:\. does"):
        gem.spec("harbor:my tasks")
    with pytest.raises(MissingData):
        gem.make("harbor:~nobody-of-this-name/tasks")
    with pytest.raises(MissingData, match="harbor:: there is no folder"):
        gem.make("harbor:")


def test_a_task_of_a_set_that_cannot_be_played_has_no_verdict_and_says_why(shell, tmp_path, capsys):
    write_task(tmp_path / "set/a")
    write_task(tmp_path / "set/b", **{"task.toml": named("b", more=STEPS)})
    with pytest.raises(BadArgument, match="needs several steps"):
        gem.make(f"harbor:{tmp_path / 'set/b'}")
    assert main(["eval", f"harbor:{tmp_path / 'set'}", "--agent", "solver"]) == 0
    printed = capsys.readouterr()
    assert "1/2" in printed.out
    assert "needs several steps" in printed.err


GIT = {"git_url": "https://example.org/tasks.git", "git_commit_id": "abc123"}


def write_registry(folder, *tasks, **more):
    rows = [{"name": "sums", "version": "1.0", "description": "", "tasks": [*tasks]}]
    rows += [{"name": name, "version": "2", "description": "", "tasks": each} for name, each in more.items()]
    (folder / "registry.json").write_text(json.dumps(rows))
    return folder / "registry.json"


def test_a_registry_names_folders_beside_it_and_refuses_what_is_in_a_repository(shell, three):
    place = write_registry(
        three,
        {"name": "c", "path": "c"},
        {"name": "remote", "path": "tasks/far", **GIT},
        {"name": "here", "path": "b", "git_url": f"file://{three}"},
        {"name": "at", "path": "b", "git_url": ".", "git_commit_id": "abc123"},
        {"name": "gone", "path": "nowhere"},
    )
    with gem.make(f"harbor:{place}") as env:
        assert [env.reset(seed=seed).info["task"] for seed in (0, 2)] == ["gem/c", "gem/b"]
        for seed, words in (
            (1, r"'remote'.*not on this machine: 'https://example.org/tasks.git'.*check out 'abc123'"),
            (3, "'at' names a commit"),
            (4, r"'gone'.*no task\.toml in 'nowhere'"),
        ):
            with pytest.raises(BadArgument, match=words):
                env.reset(seed=seed)
    assert gem.spec(f"harbor:{place}").solver == "none"
    with pytest.raises(BadArgument, match=r"'far'.*Clone it"):
        gem.make(f"harbor:{write_registry(three, {'name': 'far', 'path': 'x', **GIT})}")


def test_a_registry_does_not_lead_out_of_its_folder(three):
    outside, own = write_task(three.parent / "outside"), three / "own"
    own.mkdir()
    (own / "link").symlink_to(outside, target_is_directory=True)
    ways = [{"path": "../../outside"}, {"path": str(outside)}, {"path": "link"}]
    ways += [
        {"path": "outside", "git_url": f"file://{three.parent}"},
        {"path": "outside", "git_url": "../.."},
    ]
    ways += [{"path": "x\0y"}, {"path": "x", "git_url": "\0"}, {"path": "a" * 5000}]
    place = write_registry(own, *({"name": f"out{n}", **way} for n, way in enumerate(ways)))
    for n, entry in enumerate(find_tasks(str(place))):
        assert f"'out{n}'" in entry.refusal
        assert n > 4 or "leads out of the registry's folder" in entry.refusal


def test_one_of_several_data_sets_is_named(three):
    place = write_registry(three, {"name": "a", "path": "a"}, more=[{"name": "b", "path": "b"}])
    for name in ("#more", "#more@2"):
        assert [entry.folder.name for entry in find_tasks(f"{place}{name}")] == ["b"]
    for name in ("", "#other", "#more@3"):
        with pytest.raises(BadArgument, match=r"has the data sets sums@1\.0, more@2; name one"):
            find_tasks(f"{place}{name}")


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"name": "a"}]', "[" * 100_000])
def test_a_registry_that_cannot_be_read_is_refused(tmp_path, text):
    (tmp_path / "registry.json").write_text(text)
    with pytest.raises(BadArgument, match=r"registry\.json"):
        find_tasks(f"{tmp_path}/registry.json")


@pytest.mark.parametrize("part", ["instruction.md", "environment", "tests/test.sh", "solution/solve.sh"])
def test_a_link_out_of_the_folder_is_refused(tmp_path, part):
    task = write_task(tmp_path / "task")
    secret = tmp_path / "secret"
    (task / part).rename(secret)
    (task / part).symlink_to(secret)
    with pytest.raises(BadArgument, match=f"{part} is a link out of the folder"):
        gem.make(f"harbor:{task}")


def test_a_suite_names_folders_beside_it(shell, three):
    suite = three.parent / "suite.toml"
    suite.write_text('name = "sums"\n[[environments]]\nid = "harbor:tasks"\nkwargs = {shims = true}\n')
    (entry,) = load_suite(str(suite)).entries
    with gem.make(entry.env, **entry.kwargs) as env:
        assert env.shims
        assert env.reset(seed=1).info["task"] == "gem/b"


def test_a_store_of_somebody_else_is_replayed_without_trust(shell, three, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    assert main(["eval", f"harbor:{three}+shims", "--agent", "solver", "-n", "1", "--out", str(run)]) == 0
    monkeypatch.setenv("GEM_CACHE", str(tmp_path / "another-user"))
    assert main(["replay", str(run / "episodes.jsonl"), "all"]) == 0
    assert "same transcript" in capsys.readouterr().out
    with EpisodeStore(run / "episodes.jsonl", read_only=True) as store:
        (episode,) = (store[number] for number in range(len(store)))
    assert episode.task.spec == f"harbor:{three}+shims"
    assert episode.initial_info["task"] in ("gem/a", "gem/b", "gem/c")


@pytest.mark.system
def test_an_evaluation_knows_the_content_of_its_folders(shell, three):
    env_id = f"harbor:{three}"
    before = Entry(env_id).kwargs
    (three / "a" / "notes.txt").symlink_to("nowhere")
    assert Entry(env_id).kwargs == before
    gem.make(env_id, **before)
    with (three / "b" / "tests" / "test.sh").open("a") as file:
        file.write("# strict\n")
    edited = Entry(env_id).kwargs
    with pytest.raises(BadArgument, match=r"files of harbor:.* have changed since their digest"):
        gem.make(env_id, **before)
    (three / "c").rename(three / "0")
    digests = [each["digest"] for each in (before, edited, Entry(env_id).kwargs)]
    assert len({*digests}) == 3
    assert Entry(env_id).label == env_id


@pytest.mark.parametrize("command", ["play", "check"])
def test_the_commands_take_it(shell, three, capsys, command):
    more = ["--agent", "solver", "--seed", "1"] if command == "play" else []
    assert main([command, f"harbor:{three}", *more]) == 0
    assert ("return 1" if command == "play" else "0 broken") in capsys.readouterr().out


@pytest.mark.system
def test_an_audit_gives_no_policy_the_solution_of_a_single_task(shell, three):
    spec = gem.spec(f"harbor:{three / 'a'}")
    short = replace(spec, kwargs={**spec.kwargs, "max_turns": 2}, max_turns=2)
    card = audit_env(short, episodes=2, instances=4)
    assert card.ok
    assert card.policies["solver"].reward == 1.0
    assert card.policies["constant"].reward == card.policies["answer-everything"].reward == 0.0


@pytest.mark.system
def test_an_audit_names_the_test_that_hangs(shell, tmp_path):
    hangs = "#!/bin/sh\nsleep 600\n"
    write_task(tmp_path, **{"tests/test.sh": hangs, "task.toml": named("hang")})
    with pytest.raises(
        gem.errors.ContractBroken, match=r"the test of gem/hang \(at most 600 s\), has not ret"
    ):
        audit_env(f"harbor:{tmp_path}", episodes=2, call_s=1)
    (tmp_path / "task.toml").write_text(named("hang", more="[verifier]\ntimeout_sec = 1.0\n"))
    with pytest.raises(NoVerdict, match="the test of gem/hang gave no verdict: the test took more than 1 s"):
        audit_env(f"harbor:{tmp_path}", episodes=2)
