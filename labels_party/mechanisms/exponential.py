"""The exponential mechanism on the domain's values, at the paper's scale 2Δ/ε or the tight one Δ/ε."""

from __future__ import annotations

from label_dp.channels.base import Channel
from label_dp.channels.exponential import MAX_CELLS, MAX_DECAY, ExponentialChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon
from label_dp.privacy import Epsilon
from labels_party.mechanisms.additive import equal_steps
from labels_party.mechanisms.one_bit import constant_channel

UNEVEN_CELLS = 1 << 10
SLACK = 1_000_000  # share 1/SLACK of ε is reserved for rounding, first; four times as much after each failure


def exponential_channel(domain: Domain, epsilon: Epsilon, *, tight: bool = False) -> Channel:
    """Build P[v | y] ∝ e^(−ε|v − y|/(2Δ)), the paper's, which proves ε/2; or e^(−ε|v − y|/Δ) if `tight`, which proves
    ε.

    At the ends of the domain both normalisers are the same, and elsewhere they differ by less than the exponent leaves.
    Outputs are the domain's values if they are equally spaced and at most 2,049; otherwise a lattice, onto which labels
    are rounded at random. ε is proved in integers. Raises InvalidEpsilon (0, or too small for 64-bit weights).
    """
    if domain.k == 1:
        return constant_channel(domain, float(domain.values[0]), float(domain.values[0]))
    if not epsilon:
        raise InvalidEpsilon("The exponential mechanism needs an ε greater than zero.")
    cells = UNEVEN_CELLS if not equal_steps(domain) else min(domain.k - 1, MAX_CELLS)
    slack = SLACK
    while True:
        nano = min(epsilon.nano * (slack - 1) // slack if tight else epsilon.nano // 2, MAX_DECAY.nano)
        if nano < 1 or slack < 100:
            raise InvalidEpsilon("This ε is too small for the exponential mechanism at 64 bits.")
        channel = ExponentialChannel(domain=domain, cells=cells, decay=Epsilon(nano))
        if channel.satisfies(epsilon):
            return channel
        slack //= 4
