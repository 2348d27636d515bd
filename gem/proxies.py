"""The proxy that HTTP clients use for an address, by the environment; errors of connections name it."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def proxy_of(url: str) -> str:
    """Return the proxy for a URL, without its password; empty if there is none.

    HTTP_PROXY, HTTPS_PROXY and ALL_PROXY name proxies, NO_PROXY the hosts that are reached without one.
    """
    with suppress(ValueError):  # a URL, or a variable, that cannot be read
        parts = urlsplit(url)
        proxies = getproxies()
        proxy = proxies.get(parts.scheme) or proxies.get("all")
        if proxy and parts.hostname and not proxy_bypass(parts.netloc.rpartition("@")[2]):
            scheme, _, rest = proxy.rpartition("://")
            return f"{scheme or 'http'}://{rest.rpartition('@')[2]}"
    return ""


def through_proxy(url: str) -> str:
    """Return " (through the proxy ...)" for the text of an error about `url`; empty without a proxy."""
    proxy = proxy_of(url)
    if not proxy:
        return ""
    return f" (through the proxy {proxy}; NO_PROXY={urlsplit(url).hostname} goes around it)"
