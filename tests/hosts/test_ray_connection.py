"""What connecting to a Ray cluster refuses, and what it asks of Ray, without Ray."""

from types import SimpleNamespace
from typing import Any

import pytest

from gem.errors import BadArgument
from gem.hosts import ray_cluster
from gem.hosts.ray_cluster import Cluster


class Ray:
    """In place of the module `ray`."""

    SCRIPT_MODE = 0

    def __init__(self, connected_to: str | None = None, mode: int = 0) -> None:
        self.connected_to, self.mode = connected_to, mode
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.job_config = SimpleNamespace(JobConfig=SimpleNamespace)

    def is_initialized(self) -> bool:
        return self.connected_to is not None

    def init(self, **options: Any) -> None:
        self.calls.append(("init", options))

    def shutdown(self) -> None:
        self.calls.append(("shutdown", {}))

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(worker=SimpleNamespace(mode=self.mode), gcs_address=self.connected_to)


def use(monkeypatch: pytest.MonkeyPatch, ray: Ray) -> Ray:
    monkeypatch.setattr(ray_cluster, "ray_module", lambda: ray)
    return ray


def test_an_address_where_nothing_listens_is_refused_before_ray_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = use(monkeypatch, Ray())
    for address in ("127.0.0.1:1", "127.0.0.1:99999"):
        with pytest.raises(BadArgument, match=f"no Ray cluster at '{address}'"):
            Cluster(address)
    assert ray.calls == []


def test_only_a_cluster_that_is_started_here_is_made_without_a_dashboard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = use(monkeypatch, Ray())
    for address in ("local", "auto", None):
        Cluster(address).close()
    asked = [(options["address"], options.get("include_dashboard")) for _, options in ray.calls[::2]]
    assert asked == [("local", False), ("auto", None), (None, None)]
    assert [name for name, _ in ray.calls[1::2]] == ["shutdown"] * 3
    path = ray.calls[0][1]["job_config"]._py_driver_sys_path
    path.extend(["/home/me"])  # as Ray does with the folder of the program
    assert path == []


def test_a_connection_that_is_there_is_used_and_kept_unless_it_is_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = use(monkeypatch, Ray(connected_to="10.0.0.1:6379"))
    for address in (None, "auto", "10.0.0.1:6379"):
        Cluster(address).close()
    with pytest.raises(BadArgument, match=r"to the Ray cluster at 10\.0\.0\.1:6379, not at 'local'"):
        Cluster("local")
    assert ray.calls == []


def test_a_worker_of_another_framework_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Ray(connected_to="10.0.0.1:6379", mode=1))
    with pytest.raises(BadArgument, match="worker of a Ray cluster already"):
        Cluster()
