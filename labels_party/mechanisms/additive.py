"""Clipped discrete Laplace noise on the domain's own values: the simplest baseline."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from labels_party.mechanisms.entropy import discrete_laplace, float_not_below
from shared.channel import AdditiveChannel, smallest_unsigned
from shared.channel_base import UIntArray
from shared.domain import Domain
from shared.errors import InvalidEpsilon
from shared.privacy import Epsilon

CHUNK = 1 << 18


def discrete_laplace_channel(domain: Domain, epsilon: Epsilon) -> AdditiveChannel:
    """Scale (k − 1)/ε steps, rounded up to a 64-bit float: its ε is at most `epsilon`, exactly.

    Raises InvalidEpsilon (ε = 0) or InvalidMechanism (values not equally spaced).
    """
    if not epsilon:
        raise InvalidEpsilon("Additive noise needs an ε greater than zero.")
    steps = Fraction(max(domain.k - 1, 1)) / epsilon.fraction
    return AdditiveChannel(domain=domain, scale=Fraction(float_not_below(steps)))


def sample_additive(index: npt.NDArray[np.int64], channel: AdditiveChannel) -> UIntArray:
    """unsigned[n]: clip(index + noise, 0, k − 1) with exact discrete Laplace noise of the channel's scale."""
    k = channel.k
    out = np.zeros(index.size, dtype=smallest_unsigned(k))
    for start in range(0, index.size, CHUNK):
        own = index[start : start + CHUNK].astype(np.int64)
        noise = np.clip(discrete_laplace(channel.scale, own.size), -k, k)  # first, so that the sum cannot overflow
        out[start : start + CHUNK] = np.clip(own + noise, 0, k - 1)
    return out
