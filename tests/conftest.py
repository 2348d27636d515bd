import contextlib
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, and a busy machine is no failure.
settings.register_profile("gem", derandomize=True, deadline=None)
settings.load_profile("gem")

sys.path.insert(0, str(Path(__file__).parent / "shared"))  # what tests of several folders import

# A job that a shell starts in the background ignores SIGINT; the tests of Ctrl-C are not to depend on that.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
