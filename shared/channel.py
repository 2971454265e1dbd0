"""A randomizer as data: one import for all its kinds, and the strict reader of the manifest's form of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import cast

import numpy as np

from shared.channel_additive import AdditiveChannel
from shared.channel_base import Channel, N, WeightedChannel, smallest_unsigned
from shared.channel_exponential import ExponentialChannel
from shared.channel_kinds import DenseChannel, OneBitChannel, RRChannel
from shared.channel_knots import MAX_KNOT_CELLS, KnotsChannel
from shared.channel_noise import LaplaceChannel, NoiseChannel, StaircaseChannel
from shared.channel_top_labels import MAX_KEPT, TopLabelsChannel
from shared.domain import Domain
from shared.errors import LabelDPError, MalformedManifest
from shared.privacy import Epsilon

__all__ = [
    "AdditiveChannel",
    "Channel",
    "DenseChannel",
    "ExponentialChannel",
    "KnotsChannel",
    "LaplaceChannel",
    "N",
    "NoiseChannel",
    "OneBitChannel",
    "RRChannel",
    "StaircaseChannel",
    "TopLabelsChannel",
    "WeightedChannel",
    "channel_from_json",
    "smallest_unsigned",
]

MAX_OUTPUTS = 1 << 16
MAX_DENSE_CELLS = 1 << 20

_INTEGER = re.compile(r"0|[1-9][0-9]{0,399}", re.ASCII)
_FLOAT = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?(e[+-]?[0-9]{1,3})?", re.ASCII)
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,39})(\.[0-9]{1,40})?", re.ASCII)


def _malformed(what: str) -> MalformedManifest:
    return MalformedManifest(f"The channel in the manifest is malformed: {what}.")


def _integer(value: object) -> int:
    if not isinstance(value, str) or _INTEGER.fullmatch(value) is None:
        raise _malformed("a weight is not a canonical decimal integer")
    return int(value)


def _float(value: object) -> float:
    if not isinstance(value, str) or _FLOAT.fullmatch(value) is None or repr(float(value)) != value:
        raise _malformed("a value is not the shortest decimal form of a finite 64-bit float")
    return float(value)


def _decimal(value: object) -> Decimal:
    if not isinstance(value, str) or _DECIMAL.fullmatch(value) is None:
        raise _malformed("an end of the clipping is not a decimal number")
    return Decimal(value)


def _list(value: object, least: int, most: int) -> list[object]:
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise _malformed("a list is missing or has a wrong number of members")
    return value


def _floats(value: object, count: int | None = None) -> list[float]:
    return [_float(v) for v in _list(value, 1 if count is None else count, MAX_OUTPUTS if count is None else count)]


def _uint64(rows: Iterable[list[object]]) -> list[list[int]]:
    weights = [[_integer(w) for w in row] for row in rows]
    if any(w >= N for row in weights for w in row):
        raise _malformed("a weight is not below 2⁶⁴")
    return weights


def _rr(data: dict[str, object], domain: Domain) -> Channel:
    outputs = _floats(data["outputs"])
    boundaries = [_integer(b) for b in _list(data["boundaries"], len(outputs) + 1, len(outputs) + 1)]
    if max(boundaries) > domain.k:
        raise _malformed("a bin boundary lies outside the domain")
    return RRChannel(
        domain=domain,
        boundaries=np.array(boundaries, dtype=np.int64),
        outputs=np.array(outputs),
        A=_integer(data["A"]),
        B=_integer(data["B"]),
        bin_means=np.array(_floats(data["bin_means"], len(outputs))),
    )


def _one_bit(data: dict[str, object], domain: Domain) -> Channel:
    low, high = _decimal(data["low"]), _decimal(data["high"])
    return OneBitChannel(domain=domain, low=low, high=high, A=_integer(data["A"]), B=_integer(data["B"]))


def _additive(data: dict[str, object], domain: Domain) -> Channel:
    numerator, denominator = _integer(data["scale_numerator"]), _integer(data["scale_denominator"])
    if numerator == 0 or denominator == 0:
        raise _malformed("the scale is not a positive fraction")
    scale = Fraction(numerator, denominator)
    if (scale.numerator, scale.denominator) != (numerator, denominator):
        raise _malformed("the scale is not in lowest terms")
    return AdditiveChannel(domain=domain, scale=scale)


def _epsilon(value: object) -> Epsilon:
    if not isinstance(value, str) or _DECIMAL.fullmatch(value) is None or str(Epsilon.parse(value)) != value:
        raise _malformed("the ε of its noise is not a canonical decimal number")
    return Epsilon.parse(value)


def _laplace(data: dict[str, object], domain: Domain) -> Channel:
    return LaplaceChannel(
        domain=domain,
        noise_epsilon=_epsilon(data["epsilon"]),
        cells=_integer(data["cells"]),
        reach=_integer(data["reach"]),
        peak=_integer(data["peak"]),
    )


def _staircase(data: dict[str, object], domain: Domain) -> Channel:
    return StaircaseChannel(
        domain=domain,
        noise_epsilon=_epsilon(data["epsilon"]),
        cells=_integer(data["cells"]),
        reach=_integer(data["reach"]),
        peak=_integer(data["peak"]),
        width=_integer(data["width"]),
    )


def _exponential(data: dict[str, object], domain: Domain) -> Channel:
    return ExponentialChannel(domain=domain, decay=_epsilon(data["decay"]), cells=_integer(data["cells"]))


def _dense(data: dict[str, object], domain: Domain) -> Channel:
    outputs = _floats(data["outputs"])
    if domain.k * len(outputs) > MAX_DENSE_CELLS:
        raise _malformed("it has too many weights")
    rows = [_list(row, len(outputs), len(outputs)) for row in _list(data["weights"], domain.k, domain.k)]
    return DenseChannel(domain=domain, outputs=np.array(outputs), weights=np.array(_uint64(rows), dtype=np.uint64))


def _knots(data: dict[str, object], domain: Domain) -> Channel:
    outputs = _floats(data["outputs"])
    positions = [_integer(i) for i in _list(data["knots"], 2, MAX_KNOT_CELLS)]
    if max(positions) >= domain.k:
        raise _malformed("a knot lies outside the domain")
    if len(positions) * len(outputs) > MAX_KNOT_CELLS:
        raise _malformed("it has too many weights")
    count = len(positions)
    rows = [_list(row, len(outputs), len(outputs)) for row in _list(data["weights"], count, count)]
    channel = KnotsChannel(
        domain=domain,
        knots=np.array(positions, dtype=np.int64),
        outputs=np.array(outputs),
        weights=np.array(_uint64(rows), dtype=np.uint64),
    )
    if _float(data["residual_bias"]) != channel.residual_bias:
        raise _malformed("its residual bias is not that of its weights")
    return channel


def _top_labels(data: dict[str, object], domain: Domain) -> Channel:
    kept = [_integer(i) for i in _list(data["kept"], 2, MAX_KEPT)]
    if max(kept) >= domain.k:
        raise _malformed("a kept label lies outside the domain")
    return TopLabelsChannel(
        domain=domain, kept=np.array(kept, dtype=np.int64), A=_integer(data["A"]), B=_integer(data["B"])
    )


_READERS = {
    "rr": (_rr, {"kind", "N", "A", "B", "boundaries", "outputs", "bin_means"}),
    "one-bit": (_one_bit, {"kind", "N", "A", "B", "low", "high"}),
    "additive": (_additive, {"kind", "scale_numerator", "scale_denominator"}),
    "laplace": (_laplace, {"kind", "N", "epsilon", "cells", "reach", "peak"}),
    "staircase": (_staircase, {"kind", "N", "epsilon", "cells", "reach", "peak", "width"}),
    "exponential": (_exponential, {"kind", "N", "decay", "cells"}),
    "knots": (_knots, {"kind", "N", "knots", "outputs", "weights", "residual_bias"}),
    "rr-with-prior": (_top_labels, {"kind", "N", "A", "B", "kept"}),
    "dense": (_dense, {"kind", "N", "outputs", "weights"}),
}


def channel_from_json(data: object, domain: Domain) -> Channel:
    """A channel over `domain` from its manifest form; every member known, bounded, canonical and consistent.

    Proves nothing about ε: call `satisfies` on the result. Raises MalformedManifest.
    """
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str) or data["kind"] not in _READERS:
        raise _malformed("its kind is unknown")
    members = cast("dict[str, object]", data)
    read, names = _READERS[data["kind"]]
    if set(members) != names:
        raise _malformed("it has missing or unknown members")
    if "N" in names and members["N"] != str(N):
        raise _malformed("its weights are not out of 2⁶⁴")
    try:
        return read(members, domain)
    except MalformedManifest:
        raise
    except LabelDPError as error:
        raise _malformed(error.detail.rstrip(".")) from None
    except (ArithmeticError, ValueError):
        raise _malformed("a number is out of range") from None
