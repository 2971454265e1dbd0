"""One bit on a clipped label: two outputs c ± H, unbiased for the clipped label."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import Channel, N
from label_dp.channels.one_bit import OneBitChannel
from label_dp.channels.rr import RRChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidMechanism
from label_dp.privacy import Epsilon
from labels_party.mechanisms.entropy import Uint64Source
from labels_party.mechanisms.randomized_response import rr_weights

CHUNK = 1 << 14


def domain_ends(domain: Domain) -> tuple[Decimal, Decimal]:
    """Return the first and the last value of the domain, exact."""
    if domain.listed:
        return domain.listed[0], domain.listed[-1]
    if domain.low is None or domain.high is None:
        raise InvalidMechanism("The domain has no ends.")
    return domain.low, domain.high


def constant_channel(domain: Domain, value: float, mean: float) -> RRChannel:
    """Build the channel of one bin: every label becomes `value`, ε = 0. `mean` is E[y] under the private prior."""
    return RRChannel(
        domain=domain,
        boundaries=np.array([0, domain.k]),
        outputs=np.array([value]),
        A=N,
        B=1,
        bin_means=np.clip([mean], domain.values[0], domain.values[-1]),
    )


def one_bit_weights(epsilon: Epsilon) -> tuple[int, int]:
    """Return (A, B) of `rr_weights` for two outputs, A > B. Raises InvalidEpsilon (ε = 0 or too small for 64 bits)."""
    A, B = rr_weights(epsilon, 2)
    if A == B:
        raise InvalidEpsilon("The one-bit mechanism needs an ε greater than zero.")
    return A, B


def one_bit_channel(domain: Domain, epsilon: Epsilon, clip: tuple[Decimal, Decimal] | None = None) -> Channel:
    """Build the one-bit channel at `epsilon` on clip(y, a, b); by default the domain's ends, which makes it unbiased.

    A domain of one value gives the constant channel. `clip` must be public or already private. Raises InvalidEpsilon (ε
    = 0 or too small for 64 bits), InvalidMechanism (clipping ends not in order, or not numbers of moderate length).
    """
    if domain.k == 1:
        return constant_channel(domain, float(domain.values[0]), float(domain.values[0]))
    A, B = one_bit_weights(epsilon)
    low, high = domain_ends(domain) if clip is None else clip
    return OneBitChannel(domain=domain, low=low, high=high, A=A, B=B)


def sample_one_bit(index: npt.NDArray[np.int64], channel: OneBitChannel, stream: Uint64Source) -> npt.NDArray[np.uint8]:
    """Draw uint8[n], 1 for the upper output: u < W_y with one 64-bit draw each, so P[1] = W_y/N exactly."""
    out = np.empty(index.size, dtype=np.uint8)
    weights = channel.weights
    for start in range(0, index.size, CHUNK):
        weight = weights[index[start : start + CHUNK]]
        np.less(stream.uint64(weight.size), weight, out=out[start : start + CHUNK].view(np.bool_))
    return out
