"""Write the pages under reference/, one per package; used by build_site.py.

A page starts with the exports of its package, by full name, and contains every module of NAMES. A test checks
that all names that a package exports, or that a page or an example imports, are in one of these modules.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

NAMES = {
    "gem": "core record registry specs content history parsing seeding errors seats models plugins codec",
    "gem.envs": (
        "kit.text_game kit.dataset kit.workspace kit.drawing math.env code.env database.env "
        "terminal.env seats.seated_env bridges.remote bridges.openenv "
        "bridges.pettingzoo code.basics.problem terminal.base database.domains.domain "
        "database.mcp_tasks.base"
    ),
    "gem.tasks": "base order sources procedural",
    "gem.graders": (
        "base text math mathematics.replies mathematics.decision mathematics.questions code code_tests "
        "sql judge functions rubric many cache cascade"
    ),
    "gem.tools": (
        "base_tool python_code_tool shell_tool search_tool mcp_tool tool_env_wrapper search.base "
        "search.corpus search.full_text search.dense search.zim search.remote mcp_server.time_mcp"
    ),
    "gem.sandbox": "base choice shared remote seccomp",
    "gem.wrappers": "wrapper_factory observation_wrapper time_limit episode_tracking_wrapper transform",
    "gem.hosts": "base serial threads processes ray_cluster remote verbs",
    "gem.vector": "vector_env",
    "gem.agents": (
        "base named endpoint openai completions token_server token_formats hugging_face tiny random solver "
        "scripted human seats ray_model sampling pace outcomes kv_cache"
    ),
    "gem.rollout": (
        "episode jobs options runner ray schedule resume conversation forks store index regrade replay "
        "rewards demos"
    ),
    "gem.tokens": "renderer rows chat_template demonstration tiny",
    "gem.estimators": "algorithms returns advantages",
    "gem.train": (
        "config.train_config config.run_settings config.env_part config.bounds config.value_types "
        "config.toml_file tasks.played_env tasks.demonstrations tasks.held_out tasks.mixture "
        "tasks.schedule tasks.curriculum tasks.opponents learn.training learn.trainer "
        "learn.sampling learn.preparation learn.policy_gradient learn.steps learn.losses "
        "learn.batch learn.learner learn.policy learn.warmup learn.warmup_cache "
        "report.figures report.run_folder report.selection report.loggers report.progress "
        "report.alarms report.watcher report.callbacks baselines.study baselines.summary "
        "oracle.cases oracle.envs oracle.exact oracle.report"
    ),
    "gem.statistics": (
        "intervals passes paired combining power sequential normalise trend fisher interquartile agreement"
    ),
    "gem.evals": (
        "evaluator results suite suite_result comparison fairness outcomes power picture instances "
        "scorecard gates stopping usage reports"
    ),
    "gem.serve": (
        "environments.server environments.limits mcp.episode mcp.messages programs proxy.server search"
    ),
    "gem.viewer": "report export",
    "gem.testing": "contract rules audit audit_judge card faults fault_rules doubles stub_server leaks",
    "gem.adapters": (
        "rows parquet atif inspect_logs inspect_tasks trl trl_tools verl openrlhf skyrl tinker verifiers rl2 "
        "oat roll nemo_gym prompts"
    ),
}
"""The modules of each page, by package; tests hold that nothing is missing."""

MODULES = {package: tuple(names.split()) for package, names in NAMES.items()}

CODEC = "encode, decode, encode_run, decode_run, schema_of, pack, unpack, json_schema, plain, restored"
OPTIONS = {"gem.codec": f"[{CODEC}]"}
"""Where not all of a module is for users: what is."""


def files() -> dict[str, str | bytes]:
    """Return every file to write, by its path under docs/."""
    return {"reference/index.md": index(), **{path(package): page(package) for package in MODULES}}


def navigation() -> list[Any]:
    """Return the entries under Reference."""
    return ["reference/index.md", *({package: path(package)} for package in MODULES)]


def path(package: str) -> str:
    """Return the path of a package's page under docs/."""
    return f"reference/{package}.md"


def exports(package: str) -> dict[str, Any]:
    """Return the exports of a package by name, without those that need a package that is not installed."""
    module = importlib.import_module(package)
    found = {}
    for name in getattr(module, "__all__", ()):
        try:
            found[name] = getattr(module, name)
        except ImportError:
            continue
    return found


def full_name(value: Any) -> str | None:
    """Return the full name of a class or function, as `gem.rollout.jobs.Job`; None for plain values."""
    if inspect.isclass(value) or inspect.isfunction(value):
        return f"{value.__module__}.{value.__qualname__}"
    return None


def summary(value: Any) -> str:
    """Return the first line of a docstring, in a form for table cells."""
    doc = inspect.getdoc(value) or ""
    return doc.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def page(package: str) -> str:
    """Write the page of a package."""
    module = importlib.import_module(package)
    source = f"source: {package.replace('.', '/')}/__init__.py"
    lines = ["---", source, "---", "", f"# {package}", "", summary(module), ""]
    names = {name: where for name, value in exports(package).items() if (where := full_name(value))}
    if names:
        lines += ["| exported | what it is |", "|---|---|"]
        lines += [
            f"| [`{package}.{name}`][{where}] | {summary(exports(package)[name])} |"
            for name, where in names.items()
        ]
        lines.append("")
    if own := sorted(name for name, where in names.items() if where == f"{package}.{name}"):
        lines += [f"::: {package}", "    options:", f"      members: [{', '.join(own)}]", ""]
    for name in MODULES[package]:
        full = f"{package}.{name}"
        lines.append(f"::: {full}")
        if full in OPTIONS:
            lines += ["    options:", f"      members: {OPTIONS[full]}"]
        lines.append("")
    return "\n".join(lines)


def index() -> str:
    """Write the page that lists the packages."""
    rows = [
        f"| [`{package}`]({package}.md) | {summary(importlib.import_module(package))} | {len(modules)} |"
        for package, modules in MODULES.items()
    ]
    return "\n".join(
        [
            "---",
            "source: scripts/reference_pages.py",
            "---",
            "",
            "# Reference",
            "",
            "Every public class and function, by its full name, from the docstrings.",
            "The commands describe themselves: `gem-gym --help`, and `gem-gym COMMAND --help`.",
            "",
            "| package | what it has | modules |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )
