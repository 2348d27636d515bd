import contextlib
import gc
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, and a busy machine is no failure.
settings.register_profile("gem", derandomize=True, deadline=None)
settings.load_profile("gem")

sys.path.insert(0, str(Path(__file__).parent / "shared"))  # what tests of several folders import

from without_sandbox import REFUSED, is_for_want_of_a_sandbox, kept_refusals

# A job that a shell starts in the background ignores SIGINT; the tests of Ctrl-C are not to depend on that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    help_text = "print how many CPU seconds the N most expensive files of tests take (20)"
    parser.addoption("--cpu", nargs="?", const=20, type=int, metavar="N", help=help_text)


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it has waited for."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    # A search for cycles among ten thousand new objects finds none: that was a third of the time. Nor is what
    # was collected to be searched again behind every test.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.failed and is_for_want_of_a_sandbox(item.nodeid):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1], f"no sandbox runs programs here: {REFUSED[0]}")
    before, item.session.cpu = item.session.cpu, cpu_seconds()
    report.cpu = item.session.cpu - before  # xdist sends it on
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    item.session.cpu = cpu_seconds()
    REFUSED.clear()
    return (yield)


def _plays(nodeid, world):
    """Tell whether a test is one of a world, by its file or the id that it names."""
    return f"bridges/test_{world.name}" in nodeid or any(f"{family}:" in nodeid for family in world.families)


def pytest_terminal_summary(terminalreporter, config):
    from gem import worlds

    absent = [name for name in worlds.KNOWN if worlds.find(name) is None]
    names = f": {', '.join(absent)} (gem-gym worlds --fetch all)" if absent else ""
    passed = [report.nodeid for report in terminalreporter.stats.get("passed", ())]
    played = [world for world in worlds.KNOWN.values() if any(_plays(each, world) for each in passed)]
    terminalreporter.line(f"{len(played)} worlds played, {len(absent)} absent{names}")
    if not (count := config.getoption("--cpu")):
        return
    files = Counter()
    for report in [each for some in terminalreporter.stats.values() for each in some]:
        files[getattr(report, "nodeid", "").partition("::")[0]] += getattr(report, "cpu", 0.0)
    terminalreporter.section("CPU seconds")
    for file, seconds in files.most_common(count):
        terminalreporter.line(f"{seconds:7.1f}  {file}")
    terminalreporter.line(f"{files.total():7.1f}  all tests; {cpu_seconds():.1f} with collection")


@pytest.fixture(scope="session", autouse=True)
def users_cache(tmp_path_factory):
    """Keep what tests name out of the user's cache, and return that; its models are linked into theirs."""
    from gem.source_files import cache_folder

    users, own = cache_folder(), tmp_path_factory.mktemp("cache")
    for each in users.glob("*"):
        if each.name not in ("sources", "named"):
            (own / each.name).symlink_to(each)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEM_CACHE", str(own))
        yield users


@pytest.fixture(scope="session", autouse=True)
def refused_sandboxes():
    with kept_refusals():
        yield


@pytest.fixture(scope="session", autouse=True)
def patient_commands():
    """On a busy machine no command of a test says that nothing has happened; tests of that set their own."""
    from gem.cli import silence

    silence.AFTER_S = 300.0


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread():
    # Small models gain nothing from more threads, and tests run in parallel. Whoever uses torch has imported
    # it by now; nobody else waits for it.
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def postgres_dsn():
    """A PostgreSQL server of its own, which ends with the session."""
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'gem-gym[postgres]'")
    from gem.envs.database.postgres_server import temporary_server
    from gem.errors import MissingExtra

    with contextlib.ExitStack() as stack:
        try:
            dsn = stack.enter_context(temporary_server())
        except MissingExtra as absent:
            pytest.skip(str(absent))
        yield dsn
