"""Every place that turns what it reads into code or a task, with its reason: a new one must be added.

Names come from files of somebody else; `gem.trust` has the rule. A call that is found here and not in
LOADERS fails the test. Before you add it, say where the name that it loads comes from.
"""

import ast
import re
from pathlib import Path

import pytest

from gem.cli import main

ROOT = Path(__file__).parents[2]

BY_NAME = {"import_module", "load", "load_named", "find_named", "spec_named", "fix_name"}
BY_NAME |= {"exec", "eval", "__import__", "exec_module", "spec_from_file_location", "attrgetter"}
DECODERS = {
    "pickle.loads",
    "pickle.load",
    "marshal.loads",
    "cloudpickle.loads",
    "tomllib.loads",
    "tomllib.load",
}
DECODERS |= {"torch.load", "np.load", "yaml.load", "yaml.safe_load", "TrainConfig.from_json", "TaskRef"}
DECODERS |= {"codec.decode", "codec.decode_task", "codec.unpack"}
MODELS = {"from_pretrained", "load_dataset", "load_from_disk"}

CHECKED = "it asks gem.trust before a name is loaded"
ASKED = "whoever read the file asked gem.trust"
REGISTERED = "it is the entry point of a registered id"
MARKED = "it marks the tasks that it reads as foreign"
GIVEN = "the command line or the program names it"
OWN = "the name is a constant of gem, or one that gem offers under a word"
SENT = "a process of this program sent it"
PLAIN = "plain values or weights: nothing in it is executed"

LOADERS = {
    "gem/_upstream/__init__.py": {"__import__": OWN},
    "gem/adapters/atif.py": {"TaskRef": MARKED},
    "gem/adapters/records.py": {"codec.decode": MARKED},
    "gem/adapters/inspect_tasks.py": {"spec_named": GIVEN},
    "gem/adapters/openenv_traces.py": {"TaskRef": MARKED},
    "gem/adapters/prompts.py": {"TaskRef": GIVEN, "fix_name": GIVEN, "codec.unpack": MARKED},
    "gem/adapters/verifiers.py": {"TaskRef": MARKED, "spec_named": GIVEN},
    "gem/agents/__init__.py": {"import_module": OWN},
    "gem/agents/named.py": {"load_named": ASKED, "load": OWN},
    "gem/agents/ray_model.py": {"pickle.loads": SENT},
    "gem/cli/__init__.py": {"load": OWN},
    "gem/cli/check.py": {"load": GIVEN, "spec_named": GIVEN},
    "gem/cli/eval.py": {"fix_name": GIVEN},
    "gem/cli/mcp.py": {"spec_named": GIVEN},
    "gem/cli/play.py": {"spec_named": GIVEN},
    "gem/cli/regrade.py": {"fix_name": GIVEN},
    "gem/cli/export.py": {"load": OWN},
    "gem/cli/exploitability.py": {"load": OWN},
    "gem/codec.py": {"TaskRef": MARKED, "attrgetter": OWN},
    "gem/doctor.py": {"load": OWN},
    "gem/envs/bridges/agentdojo.py": {"yaml.safe_load": PLAIN},
    "gem/envs/bridges/bfcl.py": {"import_module": OWN},
    "gem/envs/bridges/remote.py": {"TaskRef": GIVEN},
    "gem/envs/bridges/textarena.py": {"import_module": OWN},
    "gem/envs/bridges/tau2_worlds.py": {"tomllib.loads": PLAIN},
    "gem/envs/database/domains/domain.py": {"import_module": OWN},
    "gem/envs/kit/dataset.py": {"load": PLAIN},
    "gem/envs/kit/templates.py": {"tomllib.loads": OWN},
    "gem/envs/terminal/folder.py": {"tomllib.loads": PLAIN},
    "gem/estimators/algorithms.py": {"find_named": ASKED},
    "gem/evals/evaluator.py": {"spec_named": ASKED},
    "gem/evals/instances.py": {"load": REGISTERED},
    "gem/evals/suite.py": {
        "TaskRef": CHECKED,
        "tomllib.loads": CHECKED,
        "load": REGISTERED,
        "fix_name": CHECKED,
        "spec_named": CHECKED,
    },
    "gem/evals/usage.py": {},
    "gem/files.py": {"tomllib.loads": PLAIN},
    "gem/graders/functions.py": {"load": OWN},
    "gem/graders/named.py": {"load_named": ASKED, "fix_name": ASKED},
    "gem/hosts/base.py": {"load": OWN},
    "gem/hosts/processes.py": {"pickle.loads": SENT},
    "gem/hosts/remote.py": {"TaskRef": GIVEN},
    "gem/hosts/wire.py": {"codec.unpack": MARKED},
    "gem/models.py": {"from_pretrained": PLAIN},
    "gem/naming.py": {"import_module": ASKED, "attrgetter": ASKED, "fix_name": GIVEN, "load_named": ASKED},
    "gem/plugins.py": {"import_module": ASKED, "attrgetter": ASKED, "load": GIVEN},
    "gem/registry.py": {
        "load": CHECKED,
        "TaskRef": CHECKED,
        "load_named": CHECKED,
        "fix_name": CHECKED,
        "spec_named": CHECKED,
    },
    "gem/rollout/demos.py": {"spec_named": GIVEN},
    "gem/rollout/places.py": {"TaskRef": GIVEN},
    "gem/rollout/ray_crew.py": {"pickle.loads": SENT, "codec.decode": SENT},
    "gem/rollout/ray_player.py": {"pickle.loads": SENT},
    "gem/rollout/regrade.py": {"load": GIVEN},
    "gem/rollout/jobs.py": {"spec_named": GIVEN},
    "gem/rollout/store.py": {"codec.decode": MARKED, "codec.decode_task": MARKED},
    "gem/rollout/verify.py": {"codec.decode": MARKED},
    "gem/schema_1.py": {"TaskRef": MARKED},
    "gem/serve/environments/app.py": {"load": REGISTERED, "spec_named": GIVEN},
    "gem/serve/environments/native.py": {"codec.unpack": MARKED},
    "gem/serve/proxy/app.py": {"TaskRef": GIVEN},
    "gem/source_files.py": {"pickle.loads": SENT, "exec_module": ASKED},
    "gem/specs.py": {"load": ASKED, "attrgetter": OWN},
    "gem/tasks/files.py": {"load_from_disk": PLAIN},
    "gem/tasks/sources.py": {"load_dataset": PLAIN},
    "gem/testing/audit_grader.py": {"load": OWN},
    "gem/testing/rules.py": {"pickle.loads": SENT},
    "gem/tools/__init__.py": {"import_module": OWN},
    "gem/train/__init__.py": {"import_module": OWN},
    "gem/train/baselines/rows.py": {"TrainConfig.from_json": PLAIN},
    "gem/train/baselines/study.py": {
        "load": REGISTERED,
        "fix_name": CHECKED,
        "spec_named": CHECKED,
    },
    "gem/train/baselines/worker.py": {"TrainConfig.from_json": SENT},
    "gem/train/command.py": {"spec_named": ASKED},
    "gem/train/config/env_part.py": {"fix_name": ASKED},
    "gem/train/config/toml_file.py": {},
    "gem/train/config/train_config.py": {"load": OWN, "fix_name": ASKED},
    "gem/train/learn/checkpoint.py": {"torch.load": PLAIN},
    "gem/rollout/rewards.py": {"find_named": ASKED, "fix_name": ASKED},
    "gem/train/report/callbacks.py": {"find_named": ASKED},
    "gem/train/report/loggers.py": {"load": ASKED, "load_named": ASKED},
    "gem/train/report/run_folder.py": {"TrainConfig.from_json": CHECKED, "fix_name": GIVEN},
    "gem/vector/vector_env.py": {"spec_named": GIVEN},
    "gem/viewer/report.py": {"torch.load": PLAIN},
    "gem/viewer/sources.py": {"TrainConfig.from_json": PLAIN},
    "gem/worlds.py": {"import_module": OWN},
}

LAST = BY_NAME | MODELS | {name.rpartition(".")[2] for name in DECODERS}
"""What any of them ends with: all other calls need no look."""


def called(node):
    """Return the name under which a call is listed, or None."""
    if (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) not in LAST:
        return None
    name = ast.unparse(node.func)
    place, _, last = name.rpartition(".")
    if name in DECODERS:
        return name
    from_here = place in ("", "importlib", "registry", "plugins", "plugin", "gem.registry", "super()")
    return last if last in MODELS or (last in BY_NAME and from_here) else None


def scanned():
    """Return the listed calls of each module outside the sandbox."""
    found = {}
    some = re.compile(rf"\b(?:{'|'.join(LAST)})\s*\(")  # parsing every file takes seconds
    for path in sorted((ROOT / "gem").rglob("*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
        if name.startswith(("gem/sandbox/", "gem/graders/asserts/", "gem/graders/fork_server")):
            continue
        if some.search(text):
            calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
            found[name] = {called(node) for node in calls} - {None}
    return {name: names for name, names in found.items() if names}


def test_every_loader_is_listed_with_its_reason():
    unlisted = {path: names - set(LOADERS.get(path, ())) for path, names in scanned().items()}
    assert {path: names for path, names in unlisted.items() if names} == {}


def test_the_modules_that_check_or_mark_do_so():
    for name, calls in LOADERS.items():
        text = (ROOT / name).read_text("utf-8")
        if CHECKED in calls.values():
            assert "accept_" in text or "check_task" in text, name
        if MARKED in calls.values():
            assert "foreign" in text or "codec." in text, name  # codec marks what it decodes


def test_weights_are_read_without_what_pickles_name():
    calls = [
        (path.name, ast.unparse(node))
        for path in (ROOT / "gem").rglob("*.py")
        if "torch.load" in (text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load"
    ]
    assert calls
    assert all("weights_only=True" in text for _, text in calls)


TRUSTING = ("replay", "value", "regrade", "view", "eval", "baseline", "train")


@pytest.mark.parametrize("command", TRUSTING)
def test_each_command_that_makes_what_files_name_has_the_flag(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert "--trust" in capsys.readouterr().out
