"""Addresses that a stranger's URL may lead to: one rule for webhooks and message files, against server-side request
forgery."""

from __future__ import annotations

import ipaddress
import re
import socket

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
METADATA = frozenset({ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("168.63.129.16")})
# IPv6 networks that embed IPv4 addresses: NAT64, translated, compatible
HOLDING_IPV4 = tuple(ipaddress.IPv6Network(n) for n in ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96"))
UNICAST = ipaddress.IPv6Network("2000::/3")  # routed between networks; the rest is local or unused
PROTOCOLS = ipaddress.IPv4Network("192.0.0.0/24")  # for protocols, and for the metadata of some clouds
# further spellings of IPv4 for the system's resolver: 127.1, 2130706433, 0x7f.0.0.1, 0177.0.0.1
_SHORT = re.compile(r"(0x[0-9a-f]+|[0-9]+)(\.(0x[0-9a-f]+|[0-9]+)){0,3}", re.ASCII | re.IGNORECASE)


def literal(host: str) -> Address | None:
    """Parse `host` as an address as the resolver would, with or without brackets; None if it is a name."""
    host = host.strip("[]").split("%")[0]
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host)) if _SHORT.fullmatch(host) else None
    except OSError:
        return None


def is_local(host: str) -> bool:
    """Return whether `host` spells this machine itself; other names may lead here too."""
    address = literal(host)
    named = host.lower().removesuffix(".")
    return named == "localhost" or named.endswith(".localhost") or (address is not None and is_loopback(address))


def is_loopback(address: Address) -> bool:
    """Return whether the address, or the IPv4 address embedded in it, is this machine's own."""
    return _inner(address).is_loopback


def is_reserved(address: Address) -> bool:
    """Return whether it is link-local, multicast, unspecified or a cloud's metadata: no service answers there."""
    inner = _inner(address)
    return inner.is_link_local or inner.is_multicast or inner.is_unspecified or inner in METADATA


def is_public(address: Address) -> bool:
    """Return whether it is routed between networks."""
    inner = _inner(address)
    inside = inner not in PROTOCOLS if isinstance(inner, ipaddress.IPv4Address) else inner in UNICAST
    return inside and inner.is_global and not is_reserved(inner)


def _inner(address: Address) -> Address:
    """Return the IPv4 address embedded in an IPv6 one (mapped, compatible, NAT64, 6to4, Teredo), else itself."""
    if isinstance(address, ipaddress.IPv4Address) or address.is_loopback or address.is_unspecified:
        return address
    if any(address in network for network in HOLDING_IPV4):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else address)
