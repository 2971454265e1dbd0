"""The kinds of channel, which are the classes of this room that name theirs, and the one reader of a channel in a
signed document."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import cast

from label_dp import channels
from label_dp.channels.base import Channel, N
from label_dp.channels.reading import malformed
from label_dp.domain import Domain
from label_dp.errors import LabelDPError, MalformedManifest

_MODULES = [import_module(f"{channels.__name__}.{found.name}") for found in pkgutil.iter_modules(channels.__path__)]
_CLASSES = [found for module in _MODULES for found in vars(module).values() if isinstance(found, type)]
KINDS = {found.kind: found for found in _CLASSES if issubclass(found, Channel) and found.kind}


def channel_from_json(data: object, domain: Domain) -> Channel:
    """Parse a channel over `domain` from its manifest form; every member known, bounded, canonical and consistent.

    Proves nothing about ε: call `satisfies` on the result. Raises MalformedManifest.
    """
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str) or data["kind"] not in KINDS:
        raise malformed("its kind is unknown")
    members = cast("dict[str, object]", data)
    kind = KINDS[data["kind"]]
    if set(members) != {"kind", "N", *kind.members}:
        raise malformed("it has missing or unknown members")
    if members["N"] != str(N):
        raise malformed("its weights are not out of 2⁶⁴")
    try:
        return kind.read(members, domain)
    except MalformedManifest:
        raise
    except LabelDPError as error:
        raise malformed(error.detail.rstrip(".")) from None
    except (ArithmeticError, ValueError):
        raise malformed("a number is out of range") from None
