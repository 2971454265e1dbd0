"""Proxies of the environment: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY; lower-case spellings win.

NO_PROXY is a comma-separated list of names (with all below them), addresses with or without brackets, and networks such
as 10.0.0.0/8; a port after a name or address limits the entry to it. This machine is never called through a proxy.
"""

from __future__ import annotations

import ipaddress
import os
import re
from importlib.util import find_spec

import httpx

from label_dp.client.addresses import is_local, literal
from label_dp.errors import InvalidSettings

EXAMPLE = "http://proxy.example:3128"
MOST_PORT = 65535
_PORT = re.compile(r"(\[[^]]*\]|[^:]*):([0-9]+)", re.ASCII)


def variable_on(url: httpx.URL) -> str | None:
    """Apply `variable_for` to a URL."""
    return variable_for(url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme, 0))


def variable_for(scheme: str, host: str, port: int) -> str | None:
    """Return the variable that names the proxy on the way to `host`; None if there is none."""
    variable = _set(f"{scheme}_proxy") or _set("all_proxy")
    if variable is None or is_local(host):
        return None
    without = os.environ.get(_set("no_proxy") or "", "")
    return None if any(_names(entry.strip(), host, port) for entry in without.split(",")) else variable


def proxy_of(variable: str) -> httpx.Proxy:
    """Return the proxy that a variable names. Raises InvalidSettings without the value, which may hold a password."""
    value = os.environ[variable].strip()
    try:
        named = httpx.Proxy(value if "://" in value else f"http://{value}")
        if not named.url.host or (named.url.port or 0) > MOST_PORT:
            raise ValueError
    except (ValueError, httpx.InvalidURL):
        raise InvalidSettings(
            f"The variable {variable} must name a proxy such as {EXAMPLE}; correct it, or unset it."
        ) from None
    if named.url.scheme.startswith("socks") and find_spec("socksio") is None:
        raise InvalidSettings(
            f"The variable {variable} names a SOCKS proxy, which needs a package: pip install 'httpx[socks]'. Or unset "
            "it, or name the host that is called in NO_PROXY."
        )
    return named


def _set(name: str) -> str | None:
    # a server sets HTTP_PROXY from a header `Proxy` of its caller for the programs that it runs (CGI)
    spelt = (name,) if name == "http_proxy" and "REQUEST_METHOD" in os.environ else (name, name.upper())
    return next((each for each in spelt if os.environ.get(each, "").strip()), None)


def _names(entry: str, host: str, port: int) -> bool:
    """Return whether an entry of NO_PROXY covers `host`; an unreadable entry covers none."""
    if entry == "*":
        return True
    if match := _PORT.fullmatch(entry):
        entry = match[1]
        if int(match[2]) != port:
            return False
    address, host = literal(host), host.lower().strip("[]").removesuffix(".")
    if address is not None:
        try:
            return address in ipaddress.ip_network(entry.replace("[", "").replace("]", ""), strict=False)
        except ValueError:
            return False
    name = entry.lower().removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))
