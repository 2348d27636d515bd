"""Errors of connections name the proxy that HTTP_PROXY and its like put between."""

import asyncio
import importlib.util
from contextlib import closing

import pytest

from gem.content import Message
from gem.errors import AgentUnavailable, NoVerdict
from gem.proxies import proxy_of, through_proxy

ADDRESS = "http://192.0.2.1:8000/v1"  # of a network that is for documentation alone
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY")


@pytest.fixture
def environment(monkeypatch):
    """Set variables of proxies; all others are removed."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)

    def set_variables(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_variables


@pytest.mark.parametrize(
    ("variables", "url", "expected"),
    [
        ({}, ADDRESS, ""),
        ({"HTTP_PROXY": "http://proxy:3128"}, ADDRESS, "http://proxy:3128"),
        ({"http_proxy": "proxy:3128"}, ADDRESS, "http://proxy:3128"),
        ({"HTTP_PROXY": "http://me:secret@proxy:3128"}, ADDRESS, "http://proxy:3128"),
        ({"HTTP_PROXY": "http://proxy:3128"}, "https://host/v1", ""),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "https://host/v1", "http://proxy:3128"),
        ({"ALL_PROXY": "socks5://proxy:1080"}, "https://host/v1", "socks5://proxy:1080"),
        ({"ALL_PROXY": "http://proxy:1", "NO_PROXY": "192.0.2.1"}, ADDRESS, ""),
        ({"ALL_PROXY": "http://proxy:1", "NO_PROXY": "*"}, ADDRESS, ""),
        ({"ALL_PROXY": "http://proxy:1", "NO_PROXY": "example.org"}, "http://me:x@a.example.org/v1", ""),
        ({"ALL_PROXY": "http://proxy:1", "NO_PROXY": "example.org"}, "http://other.org/v1", "http://proxy:1"),
        ({"ALL_PROXY": "http://proxy:1"}, "http://[half", ""),
        ({"ALL_PROXY": "http://proxy:1"}, "", ""),
    ],
)
def test_the_proxy_of_an_address(environment, variables, url, expected):
    environment(**variables)
    assert proxy_of(url) == expected
    assert ("through the proxy" in through_proxy(url)) == bool(expected)
    assert "secret" not in through_proxy(url)


def test_an_agent_names_the_proxy(environment):
    pytest.importorskip("httpx")
    from gem.agents import OpenAIAgent
    from gem.record import Ask

    environment(HTTP_PROXY="http://me:secret@127.0.0.1:1")
    agent = OpenAIAgent("m", base_url=ADDRESS, retries=0, grace_s=0)
    with closing(agent), pytest.raises(NoVerdict) as raised:
        agent([Ask("e", "agent", 0, (Message("user", "say five"),))])
    assert "through the proxy http://127.0.0.1:1; NO_PROXY=192.0.2.1 goes around it" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "nonsense://127.0.0.1:1"])
def test_a_proxy_that_cannot_be_used_ends_the_run(environment, proxy):
    httpx = pytest.importorskip("httpx")
    from gem.agents.connections import Clients

    environment(ALL_PROXY=proxy)

    async def ask():
        clients = Clients(httpx.Timeout(1))
        async with clients.one():
            pass
        await clients.aclose()

    if proxy.startswith("socks5") and importlib.util.find_spec("socksio"):
        pytest.skip("socksio is installed")
    with pytest.raises(AgentUnavailable, match="ALL_PROXY"):
        asyncio.run(ask())


def test_a_search_service_names_the_proxy(environment):
    pytest.importorskip("httpx")
    from gem.tools.search.base import SearchFailed
    from gem.tools.search.remote import RemoteEngine

    environment(ALL_PROXY="http://127.0.0.1:1")
    engine = RemoteEngine(retries=0, timeout_s=5)
    with pytest.raises(SearchFailed, match=r"through the proxy http://127\.0\.0\.1:1"):
        engine._ask("GET", "http://192.0.2.1/retrieve")
    engine.close()


def test_a_remote_sandbox_names_the_proxy(environment):
    pytest.importorskip("httpx")
    from gem.sandbox import SandboxFailed
    from gem.sandbox.remote import RemoteSandbox

    environment(ALL_PROXY="http://127.0.0.1:1")
    with (
        RemoteSandbox("http://192.0.2.1") as sandbox,
        pytest.raises(SandboxFailed, match="through the proxy"),
    ):
        sandbox.run("1")
