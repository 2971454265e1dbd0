"""Every kind of channel, and the one reader of what a signed document says of a channel."""

from __future__ import annotations

from typing import cast

from shared.channels.base import Channel, N
from shared.channels.dense import DenseChannel
from shared.channels.exponential import ExponentialChannel
from shared.channels.knots import KnotsChannel
from shared.channels.laplace import LaplaceChannel
from shared.channels.one_bit import OneBitChannel
from shared.channels.reading import malformed
from shared.channels.rr import RRChannel
from shared.channels.staircase import StaircaseChannel
from shared.channels.top_labels import TopLabelsChannel
from shared.domain import Domain
from shared.errors import LabelDPError, MalformedManifest

_KINDS: tuple[type[Channel], ...] = (
    RRChannel,
    OneBitChannel,
    LaplaceChannel,
    StaircaseChannel,
    ExponentialChannel,
    KnotsChannel,
    TopLabelsChannel,
    DenseChannel,
)
KINDS = {kind.kind: kind for kind in _KINDS}


def channel_from_json(data: object, domain: Domain) -> Channel:
    """A channel over `domain` from its manifest form; every member known, bounded, canonical and consistent.

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
