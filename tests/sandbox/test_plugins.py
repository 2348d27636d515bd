"""Sandboxes of one's own: by instance, and by the name under which a package offers one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import gem
from gem.envs.code.env import CodeBasics
from gem.envs.database.engines import SqliteEngine
from gem.errors import BadArgument
from gem.sandbox import Sandbox, SandboxFailed, default_sandbox, open_sandbox
from gem.tools.python_code_tool import PythonCodeTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper


class Own:
    """A sandbox of somebody else's: the process's one, with a count of what it was used for."""

    backend = "own"

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.used: Counter[str] = Counter()
        self.inside = default_sandbox()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.used["run"] += 1
        return self.inside.run(*args, **kwargs)

    def session(self, *args: Any, **kwargs: Any) -> Any:
        self.used["session"] += 1
        return self.inside.session(*args, **kwargs)

    def judge(self, *args: Any, **kwargs: Any) -> Any:
        self.used["judge"] += 1
        return self.inside.judge(*args, **kwargs)

    def report(self) -> Any:
        return self.inside.report()

    def close(self) -> None:
        self.used["close"] += 1


@pytest.fixture
def own() -> Own:
    try:
        return Own()
    except SandboxFailed as none:
        pytest.skip(str(none))


def test_a_sandbox_is_taken_where_its_name_is_and_never_closed(own: Own) -> None:
    assert isinstance(own, Sandbox)
    assert open_sandbox(own) is default_sandbox(own) is own
    assert PythonCodeTool(sandbox_type=own).call("print(6 * 7)").text == "42"
    assert own.used == {"session": 1}
    with CodeBasics("easy", sandbox_type=own) as env:
        env.reset(seed=1)
        env.fork().step("```python\npass\n```")
    assert own.used == {"session": 1, "judge": 1}
    engine = SqliteEngine(sandbox_type=own)
    engine.open("db", "CREATE TABLE t (x); INSERT INTO t VALUES (5)")
    assert engine.run("db", "SELECT x FROM t")[0]["rows"] == [[5]]
    engine.close()
    assert own.used == {"session": 2, "judge": 1}


def test_a_live_sandbox_makes_a_task_opaque(own: Own) -> None:
    env = ToolEnvWrapper(gem.make("qa:Facts-v0-easy"), [PythonCodeTool(sandbox_type=own)])
    assert gem.registry.task_of(env).opaque == ("ToolEnvWrapper.tools",)


def test_a_package_offers_a_sandbox_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_cloud.py").write_text(
        "from types import SimpleNamespace\n"
        "def connect(**options):\n    return SimpleNamespace(backend='theirs', options=options)\n"
    )
    info = tmp_path / "their_cloud-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-cloud\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gem.sandboxes]\ntheirs = their_cloud:connect\n")
    monkeypatch.syspath_prepend(tmp_path)
    opened: Any = open_sandbox("theirs", region="north")
    assert (opened.backend, opened.options) == ("theirs", {"region": "north"})
    with pytest.raises(BadArgument, match=r"Did you mean 'theirs'.*none, theirs"):
        open_sandbox("their")
