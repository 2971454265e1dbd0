"""Addresses of webhooks: rules against server-side request forgery.

By default: https to hosts with public addresses only, and http or https to this machine itself. With the setting
LABELS_PARTY_WEBHOOK_HOSTS: only the hosts it names, wherever they are; `http://HOST` there permits plain http.
Link-local addresses (such as cloud metadata) are always refused. The connection goes to the address that was checked,
so a changed DNS entry cannot redirect it.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from label_dp.client.addresses import Address, is_local, is_loopback, is_public, is_reserved, literal
from label_dp.errors import InvalidInput

MAX_URL = 2000


@dataclass(frozen=True)
class WebhookTarget:
    """Endpoint with the address to connect to."""

    url: str
    host: str
    port: int
    address: str


class AddressRules:
    """Rules for endpoints. `hosts`: entries of LABELS_PARTY_WEBHOOK_HOSTS, `host` or `http://host`; empty: no list."""

    def __init__(self, hosts: tuple[str, ...] = ()) -> None:
        self.plain = frozenset(h.removeprefix("http://").lower() for h in hosts if h.startswith("http://"))
        self.hosts = frozenset(h.removeprefix("http://").lower() for h in hosts)

    def check(self, url: str) -> SplitResult:
        """Check and parse a URL without resolving its host. Raises InvalidInput."""
        if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
            raise InvalidInput(f"A webhook's URL is at most {MAX_URL} printable ASCII characters.")
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            raise InvalidInput("The webhook's URL cannot be read; it looks like https://host/path.") from None
        if parts.scheme not in ("http", "https") or not host:
            raise InvalidInput("The webhook's URL cannot be read; it looks like https://host/path.")
        if parts.username is not None or parts.password is not None or parts.fragment:
            raise InvalidInput("A webhook's URL has no user name, password or fragment; notices are signed instead.")
        if self.hosts and host.lower() not in self.hosts:
            raise InvalidInput("LABELS_PARTY_WEBHOOK_HOSTS does not name this host; notices go to listed hosts only.")
        if parts.scheme == "http" and not (is_local(host) and not self.hosts) and host.lower() not in self.plain:
            raise InvalidInput(
                "Notices go over https; plain http is for this machine, or for a host that "
                "LABELS_PARTY_WEBHOOK_HOSTS names as http://HOST."
            )
        address = literal(host)
        if address is not None:
            self._allow(address)
        return parts

    def resolve(self, url: str) -> WebhookTarget:
        """Check a URL, resolve its host and check all its addresses. Raises InvalidInput, OSError (no address)."""
        parts = self.check(url)
        host = str(parts.hostname)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        addresses = [ipaddress.ip_address(str(entry[4][0]).split("%")[0]) for entry in _look_up(host, port)]
        for address in addresses:
            self._allow(address)
            # plain http is only for this machine
            if parts.scheme == "http" and not self.hosts and not address.is_loopback:
                raise InvalidInput("The webhook's host is not this machine; notices go there over https only.")
        return WebhookTarget(url, host, port, str(addresses[0]))

    def _allow(self, address: Address) -> None:
        if is_reserved(address):
            raise InvalidInput("The webhook's host has an address that no service answers from; it is refused.")
        if not self.hosts and not is_public(address) and not is_loopback(address):
            raise InvalidInput(
                "The webhook's host is in a private network; name it in LABELS_PARTY_WEBHOOK_HOSTS to allow it."
            )


def _look_up(host: str, port: int) -> list[tuple[Any, ...]]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
