import json
import re
import shutil
from importlib.resources import files as resources
from pathlib import Path

import pytest

import gem
from gem.agents.solver import SolverAgent
from gem.envs.kit.templates import read_toml
from gem.envs.kit.workspace import MAX_CALLS, NOT_COUNTED
from gem.envs.terminal.base import TerminalTask
from gem.envs.terminal.env import TerminalEnv
from gem.envs.terminal.folder import script_test
from gem.envs.terminal.tasks import FAMILIES
from gem.envs.terminal.tasks.code import _DEFECTS, _cases
from gem.errors import BadArgument, CannotFork, MissingExtra, NoSolver, NoVerdict
from gem.rollout import Job, rollout
from gem.sandbox import SandboxFailed
from gem.seeding import stream

INSTRUCTIONS = Path(__file__).with_name("terminal_instructions.json")
LEVELS = ("easy", "hard")
EVERY = [(name, level) for name in FAMILIES for level in LEVELS]


@pytest.fixture
def make(shell):
    made = []

    def make(name="FindText", **kwargs):
        try:
            made.append(TerminalEnv(name, **kwargs))
        except MissingExtra as absent:
            pytest.skip(str(absent))
        return made[-1]

    yield make
    for env in made:
        env.close()


def call(command):
    return f"<tool_call>{json.dumps({'name': 'bash', 'arguments': {'command': command}})}</tool_call>"


def begin(env):
    """Reset, where the sandbox has what the task needs."""
    try:
        env.reset(seed=0)
    except SandboxFailed as absent:
        pytest.skip(str(absent))


def draw(name, level, seed):
    return FAMILIES[name].draw(stream(seed), level == "hard")


# -- the families


@pytest.mark.parametrize(("name", "level"), EVERY)
def test_a_seed_is_a_task_and_another_seed_another(name, level):
    one, again = draw(name, level, 1), draw(name, level, 1)
    assert (one.instruction, one.files, one.setup) == (again.instruction, again.files, again.setup)
    assert one.solution == again.solution
    drawn = [draw(name, level, seed) for seed in range(20)]
    assert len({(task.instruction, task.setup, repr(task.files)) for task in drawn}) == 20


def test_instructions_say_what_they_said():
    said = {f"{name}-{level}": draw(name, level, 0).instruction for name, level in EVERY}
    kept = json.loads(INSTRUCTIONS.read_text())
    assert said == kept, f"if that is wanted, write what is said to {INSTRUCTIONS.name}"


def test_every_family_is_registered_in_two_levels_and_names_its_programs():
    assert gem.ids("terminal") == sorted(f"terminal:{name}-v0-{level}" for name, level in EVERY)
    assert len(FAMILIES) >= 12
    assert all(
        shutil.which(program) or program in ("git", "make")
        for f in FAMILIES.values()
        for program in f.programs
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_the_solution_passes_the_hidden_test_and_doing_nothing_does_not(make, name):
    env = make(name)
    begin(env)
    idle = env.step("<bash>true</bash><submit/>")
    assert (idle.reward, idle.terminated, idle.info["stop"]) == (0.0, True, "failed")
    env.reset(seed=0)
    assert env.step(env.solve()).terminated is False
    step = env.step(env.solve())
    assert (step.reward, step.terminated, step.truncated, step.info) == (
        1.0,
        True,
        False,
        {"success": True, "stop": "solved"},
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "level"), EVERY)
def test_more_seeds_are_solved_and_not_by_doing_nothing(make, name, level):
    env = make(name, level=level)
    for seed in range(1, 6):
        env.reset(seed=seed)
        assert env.step("<bash>true</bash><submit/>").reward == 0.0
        env.reset(seed=seed)
        env.step(env.solve())
        step = env.step(env.solve())
        assert step.reward == 1.0, (seed, step.info)


def test_every_defect_of_a_repository_shows_in_a_hidden_case():
    from gem.envs.terminal.tasks import textkit

    source = Path(textkit.__file__).read_text()
    for name, defects in _DEFECTS.items():
        cases = _cases(name, stream(0), 12)
        right = [getattr(textkit, name)(*args) for args in cases]
        for good, bad in defects:
            start = source.index(f"def {name}(")
            assert good in source[start:]
            broken: dict = {}
            exec(source[:start] + source[start:].replace(good, bad, 1), broken)  # noqa: S102  our own text
            given = []
            for args in cases[-4:]:
                try:
                    given.append(broken[name](*args))
                except Exception:
                    given.append(None)
            assert given != right[-4:], (name, good)


# -- turns


def test_commands_keep_folder_and_variables_and_their_output_is_shown(make):
    env = make()
    obs, info = env.reset(seed=0)
    assert "20 turns" in obs
    assert [tool["name"] for tool in info["tools"]] == ["bash", "submit"]
    assert env.step("<bash>mkdir -p x/y && cd x/y && export A=b && pwd</bash>").obs.endswith("/x/y")
    step = env.step("I look.\n```bash\necho $A; basename $PWD; cat nothing\n```\nand so on")
    assert step.obs == "b\ny\ncat: nothing: No such file or directory\n[exit code 1]"
    told = {"tool": "bash", "error": True, "refused": False, "shown": len(step.obs)}
    assert (step.reward, step.done, step.info) == (0.0, False, {"tool_results": [told]})


def test_several_commands_in_one_turn_run_in_order(make):
    env = make()
    env.reset(seed=0)
    step = env.step(
        "<bash>export x=1; echo a</bash> And on.\n```bash\necho $x; false\n```\n" + call("echo c")
    )
    assert step.obs == "a\n1\n[exit code 1]\nc"
    assert [(told["error"], told["shown"]) for told in step.info["tool_results"]] == [
        (False, 1), (True, 15), (False, 1)
    ]  # fmt: skip


def test_more_calls_than_a_turn_may_have_are_refused_and_none_is_run(make):
    env = make()
    env.reset(seed=0)
    step = env.step("<bash>touch ~/x</bash>" * (MAX_CALLS + 1) + "<submit/>")
    assert step.obs.startswith(f"That is {MAX_CALLS + 1} calls, none was run")
    assert (step.done, step.info["legal"]) == (False, False)
    assert env.step("<bash>ls ~/x</bash>").obs.startswith("ls: cannot access")


def test_the_commands_of_a_turn_share_its_time(make):
    env = make(command_s=1)
    env.reset(seed=0)
    step = env.step(call("sleep 60") + call("touch ~/x; echo done"))
    assert "[stopped" in step.obs
    assert step.obs.endswith("It was not run: the time for the commands of a turn is used up.")
    assert env.step(call("ls ~/x")).obs.startswith("ls: cannot access")


def test_a_submission_beside_a_call_that_is_wrong_does_not_count(make):
    env = make()
    env.reset(seed=0)
    step = env.step(call("echo a") + '<tool_call>{"name": "bsh"}</tool_call><submit/>')
    assert (step.done, step.info.get("legal")) == (False, None)
    assert step.obs.startswith("a\nthere is no tool 'bsh'. Did you mean 'bash'?")
    assert step.obs.endswith(NOT_COUNTED)
    assert env.step('<tool_call>{"name": "submit"}</tool_call>').info["stop"] == "failed"


@pytest.mark.parametrize(
    "action",
    [
        '<tool_call>{"name": "python", "arguments": {"code": "1"}}</tool_call>',
        '<tool_call>{"name": "bash", "arguments": {"command": 3}}</tool_call>',
        "<tool_call>{</tool_call>",
    ],
)
def test_a_call_of_another_kind_is_answered_with_the_form(make, action):
    env = make()
    env.reset(seed=0)
    step = env.step(action)
    assert "Write commands in <bash>" in step.obs
    assert step.info["legal"] is False
    assert env.step(call("echo hi")).obs == "hi"


def test_an_action_with_neither_commands_nor_a_submission_costs_its_turn(make):
    env = make(max_turns=2)
    env.reset(seed=0)
    step = env.step("I would rather not. <think><bash>rm -rf ~</bash> <submit/></think>")
    assert "<submit/>" in step.obs
    assert (step.done, step.info) == (False, {"legal": False})
    step = env.step("still nothing")
    assert (step.terminated, step.info["stop"]) == (True, "turn_budget")


@pytest.mark.parametrize(
    "submission", ["<submit/>", "<submit></submit>", "Done: \\boxed{done}", "\\boxed{ Done }"]
)
def test_a_submission_counts_after_the_commands_of_its_turn(make, submission):
    env = make("ConfigEdit")
    env.reset(seed=3)
    step = env.step(f"{env.solve()}\n{submission}")
    assert (step.reward, step.info["stop"]) == (1.0, "solved")


@pytest.mark.parametrize("words", ["<submit/>", r"\boxed{done}"])
def test_a_submission_inside_a_command_that_was_cut_off_is_none(make, words):
    env = make()
    env.reset(seed=0)
    step = env.step(f"I write it down: <bash>cat > notes <<'END'\nThen write {words}")
    assert (step.terminated, step.info) == (False, {"legal": False})


def test_a_submission_inside_a_command_is_none(make):
    env = make()
    env.reset(seed=0)
    step = env.step("<bash>echo '<submit/>' '\\boxed{done}'</bash>")
    assert not step.done
    assert "<submit/>" in step.obs


def test_when_turns_or_time_are_used_up_what_is_there_counts(make):
    env = make("ConfigEdit", max_turns=1)
    env.reset(seed=0)
    step = env.step(env.solve())
    assert (step.reward, step.info["stop"]) == (1.0, "solved")
    env = make("ConfigEdit", command_s=1, time_s=1)
    env.reset(seed=0)
    step = env.step("<bash>sleep 30</bash>")
    assert "[stopped: it took more than" in step.obs
    assert "The time for commands is used up." in step.obs
    assert (step.terminated, step.truncated, step.info["stop"]) == (True, False, "turn_budget")


def test_a_command_that_hangs_is_stopped_and_the_task_goes_on(make):
    env = make(command_s=1)
    env.reset(seed=0)
    step = env.step("<bash>sleep 60</bash>")
    assert not step.done
    assert "[stopped" in step.obs
    assert env.step("<bash>echo here</bash>").obs == "here"


# -- what a hidden test must not fall for


def test_what_the_agent_leaves_running_is_ended_before_the_test_looks(make):
    env = make()
    env.reset(seed=0)
    env.step("<bash>sleep 1000 & (trap '' TERM HUP; setsid sleep 1000) > /dev/null 2>&1 &</bash>")
    begun = "until [ $(pgrep -x sleep | wc -l) = 2 ]; do :; done; echo both"
    assert env.step(f"<bash>{begun}</bash>").obs == "both"
    left = lambda machine: "still running" if machine.run("pgrep -x sleep").ok else ""  # noqa: E731
    object.__setattr__(env.task, "check", left)
    assert env.step("<submit/>").info == {"success": True, "stop": "solved"}


def test_traps_for_the_hidden_tests_shell_do_not_work(make):
    env = make("Permissions")
    env.reset(seed=0)
    env.step(
        "<bash>mkdir -p bin; printf '#!/bin/sh\\necho ok\\n' | tee bin/find bin/bash bin/git > /dev/null; "
        "chmod +x bin/*; export PATH=$HOME/bin:$PATH BASH_ENV=$HOME/trap ENV=$HOME/trap; echo 'exit 0' > "
        "trap; "
        "find() { true; }; export -f find; cp trap .bashrc; cp trap .profile; alias find=true</bash>"
    )
    env.step("<bash>mkdir -p /logs/verifier; echo 1 > reward.txt; echo 1 > /logs/verifier/reward.txt</bash>")
    step = env.step(
        "<bash>python3 -I -c \"open('/proc/1/mem', 'r+b')\"; kill -9 1; kill -STOP 1; echo tried</bash>"
    )
    assert "PermissionError" in step.obs
    assert env.step("<submit/>").reward == 0.0


@pytest.mark.parametrize("name", ["PatchRepo", "LogAnalysis", "Service", "GitHistory"])
def test_no_hidden_answer_is_in_the_box(make, name):
    env = make(name)
    begin(env)
    seen = env.step("<bash>ls -A ~ /tmp; env; ls -R ~ | grep -i -e hidden -e verdict -e expected</bash>").obs
    assert "cases" not in seen
    assert "rows" not in seen


def test_replaced_git_objects_do_not_pass_for_a_merge(make):
    env = make("GitMerge")
    env.reset(seed=0)
    env.step(
        "<bash>cd */repo; (git show main:hosts.txt; git show feature:hosts.txt) | LC_ALL=C sort -u > "
        "hosts.txt; "
        "git show feature:feature.md > feature.md; git add .; git commit -qm all; "
        "fake=$(git commit-tree -p main~1 -p feature -m x main^{tree}); git replace -f main $fake; "
        "git log -1 --format=%P main</bash>"
    )
    assert env.step("<submit/>").reward == 0.0


_FORGE_LINKS = """
import os
moved = {name: f"../{folder}/{name}" for folder, _, names in os.walk("store") for name in names}
for name in moved:
    os.remove(f"links/{name}")
os.symlink("x\\n" + "\\n".join(f"l {name} {path}" for name, path in moved.items()), f"links/{min(moved)}")
"""


@pytest.mark.parametrize(
    ("name", "forgery"),
    [
        ("Symlinks", f"python3 - <<'END'\n{_FORGE_LINKS}\nEND"),
        ("GitMerge", "cd repo; git tag main; git checkout -q --detach; git branch -f main main~1"),
        ("CsvReport", "sed -i 's/: [0-9.]*/: 1'$(printf '%0400d' 0)/g report.json"),
        ("FindText", "head -c 5000000 /dev/zero | tr '\\0' '\\n' >> found.txt"),
        ("Duplicates", "ln -s gone data/left.bin"),
        ("Rename", "ln -s gone photos/left.jpg"),
    ],
)
def test_a_forged_state_fails(make, name, forgery):
    env = make(name)
    env.reset(seed=0)
    env.step(env.solve())
    env.step(f"<bash>cd ~/*; {forgery}</bash>")
    assert env.step("<submit/>").reward == 0.0


@pytest.mark.system
@pytest.mark.parametrize(("name", "answer"), [("FindText", "found.txt"), ("CsvReport", "report.json")])
def test_a_right_answer_may_be_a_link_and_begin_with_a_byte_order_mark(make, name, answer):
    for change, reward in (
        (f"mkdir kept; mv {answer} 'kept/a b'; ln -s 'kept/a b' {answer}", 1.0),
        (f"mv {answer} ~/x; ln -s ~/x {answer}", 1.0),
        (f"sed -i '1s/^/\\xef\\xbb\\xbf/' {answer}", 1.0),
        (f"mv {answer} /tmp/x; ln -s /tmp/x {answer}", 0.0),  # it would not be in what is handed in
        (f"ln -sf /dev/zero {answer}", 0.0),
        (f"rm {answer}; ln -s {answer} {answer}", 0.0),
    ):
        env = make(name)
        env.reset(seed=0)
        env.step(env.solve())
        env.step(f"<bash>cd ~/*-*/; {change}</bash>")
        assert env.step("<submit/>").reward == reward, change


def test_the_rows_of_a_service_are_not_left_in_its_standard_input(make):
    env = make("Service", level="hard")
    begin(env)
    assert (
        "kind" not in env.step("<bash>timeout 2 cat /proc/[0-9]*/fd/0 2>/dev/null | head -c 300</bash>").obs
    )


@pytest.mark.system
def test_a_box_that_the_agent_bursts_is_its_own_failure(make):
    env = make()
    env.reset(seed=0)
    step = env.step(
        '<bash>python3 -c "x = [bytearray(1 << 28) for _ in range(64)]; input()"; echo $?</bash><submit/>'
    )
    assert (step.terminated, step.info["success"]) == (True, False)


# -- claims and errors


def test_it_cannot_be_forked_or_saved(make):
    env = make()
    env.reset(seed=0)
    with pytest.raises(CannotFork):
        env.fork()
    with pytest.raises(CannotFork):
        env.get_state()


def test_episodes_run_at_once_on_threads(shell):
    jobs = [Job(lambda: gem.make("terminal:Rename-v0-easy"), seed) for seed in range(4)]
    episodes = rollout(jobs, SolverAgent(), host="thread")
    assert [episode.reward() for episode in episodes] == [1.0] * 4


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({}, "exactly one"),
        ({"name": "GitMerg"}, "Did you mean 'GitMerge'"),
        ({"name": "FindText", "level": "mild"}, "accepted: easy, hard"),
        ({"name": "FindText", "max_turns": 0}, "max_turns is 0"),
        ({"task_dir": "/nowhere"}, "neither task.toml"),
    ],
)
def test_wrong_arguments_are_refused(kwargs, said):
    with pytest.raises(BadArgument, match=said):
        TerminalEnv(**kwargs)


def test_a_set_up_that_fails_gives_no_verdict(make, monkeypatch):
    env = make()
    env.reset(seed=0)
    object.__setattr__(env.task, "setup", "exit 4")
    with pytest.raises(NoVerdict, match="exit code 4"):
        env.step("<bash>ls</bash>")


# -- tasks of one's own, and task folders


def test_a_task_of_ones_own_begins_from_an_image(shell, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("from the image\n")
    task = TerminalTask(
        "Copy in/a.txt to b.txt.",
        script_test(
            {"test.sh": b'cmp in/a.txt b.txt && grep -q image "$TEST_DIR/words"', "words": b"image\n"}
        ),
        "cp in/a.txt b.txt",
        image=tmp_path,
    )
    with TerminalEnv(task=task) as env:
        env.reset(seed=0)
        assert env.step("<bash>echo changed > in/a.txt; cat in/a.txt</bash>").obs == "changed"
        assert env.step("<submit/>").reward == 0.0
        env.reset(seed=0)
        assert env.step("<bash>cat in/a.txt</bash>").obs == "from the image"
        env.step(env.solve())
        assert env.step(env.solve()).reward == 1.0
    assert (tmp_path / "in/a.txt").read_text() == "from the image\n"


def harbor(
    folder,
    test="grep -cx 42 /app/answer.txt > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt",
):
    for path, text in {
        "task.toml": "[verifier]\ntimeout_sec = 30.0\n",
        "instruction.md": "Write 42 to /app/answer.txt, from /app/data/hint.txt.\n",
        "environment/data/hint.txt": "42\n",
        "tests/test.sh": f"#!/bin/bash\nls /tests > /dev/null || exit 9\n{test}\n",
        "tests/secret.txt": "the answer is 42\n",
        "solution/solve.sh": "cat /app/data/hint.txt > /app/answer.txt\n",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def test_a_harbor_folder_is_played_and_scored(shell, tmp_path):
    with TerminalEnv(task_dir=harbor(tmp_path)) as env:
        obs, _ = env.reset(seed=0)
        assert obs.startswith("Write 42 to ~/answer.txt, from ~/data/hint.txt.")
        seen = env.step(
            "<bash>cat data/hint.txt; ls -A; find ~ /tmp -name 'secret.txt' 2>/dev/null; true</bash>"
        ).obs
        assert seen == "42\ndata"
        env.step("<bash>mkdir -p .logs/verifier .tests; echo 1 > .logs/verifier/reward.txt</bash>")
        assert env.step("<submit/>").reward == 0.0  # a reward that the agent writes is worthless
        env.reset(seed=0)
        env.step(env.solve())
        assert env.step("<submit/>").reward == 1.0


def test_a_terminal_bench_folder_is_played_and_scored(shell, tmp_path):
    for path, text in {
        "task.yaml": "instruction: |-\n  Make /app/a.txt\n  hold b.\ndifficulty: easy\nmax_test_timeout_sec: "
        "20\n",
        "run-tests.sh": 'python3 "$TEST_DIR/check.py"\n',
        "tests/check.py": "assert open('/app/a.txt').read() == 'b\\n'\n",
        "start.txt": "here\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    with TerminalEnv(task_dir=tmp_path) as env:
        assert env.reset(seed=0).obs.startswith("Make ~/a.txt\nhold b.")
        with pytest.raises(NoSolver):
            env.solve()
        assert "start.txt" in env.step("<bash>ls</bash>").obs
        assert env.step("<submit/>").reward == 0.0
        env.reset(seed=0)
        assert env.step("<bash>echo b > a.txt</bash><submit/>").reward == 1.0


@pytest.mark.parametrize("settings", ["[verifier", "verifier = 3\n", "environment = []\n"])
def test_settings_that_are_none_are_refused(tmp_path, settings):
    harbor(tmp_path)
    (tmp_path / "task.toml").write_text(settings)
    with pytest.raises(BadArgument, match=r"task\.toml"):
        TerminalEnv(task_dir=tmp_path)


def test_a_folder_that_needs_an_engine_or_has_no_test_says_so(tmp_path, monkeypatch):
    harbor(tmp_path)
    (tmp_path / "environment/Dockerfile").write_text("FROM ubuntu\n")
    monkeypatch.setenv("GEM_SANDBOX_ENGINE", "no-engine-of-this-name")
    with pytest.raises(SandboxFailed, match="no-engine-of-this-name is not installed"):
        TerminalEnv(task_dir=tmp_path)
    (tmp_path / "environment/docker-compose.yaml").write_text("services:\n  a:\n    x: y\n  b:\n    x: y\n")
    with pytest.raises(BadArgument, match="defines its machine in docker-compose"):
        TerminalEnv(task_dir=tmp_path)
    (tmp_path / "environment/docker-compose.yaml").unlink()
    (tmp_path / "environment/Dockerfile").unlink()
    (tmp_path / "tests/test.sh").unlink()
    with pytest.raises(BadArgument, match=r"no tests/test\.sh"):
        TerminalEnv(task_dir=tmp_path)


def test_every_file_of_the_tasks_texts_is_used():
    folder = resources("gem.envs.terminal.tasks")
    used = {"instructions.toml"}
    asked = set()
    for path in folder.iterdir():
        if path.name.endswith(".py"):
            calls = re.findall(r"\b(instruction|solution|program)\(\s*['\"](\w+)['\"]", path.read_text())
            asked |= {name for what, name in calls if what == "instruction"}
            used |= {f"{name}.sh" for what, name in calls if what == "solution"}
            used |= {f"{name}.py.txt" for what, name in calls if what == "program"}
    assert used == {
        path.name for path in folder.iterdir() if path.is_file() and not path.name.endswith(".py")
    }
    assert asked == read_toml("gem.envs.terminal.tasks", "instructions.toml").keys()
