"""Staircase noise, continuous (on a fine lattice) and discrete, with the step width best for the loss."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from label_dp.channels.base import Channel
from label_dp.channels.noise_weights import staircase_period
from label_dp.channels.staircase import StaircaseChannel
from label_dp.domain import Domain
from label_dp.losses import Loss, get_loss
from label_dp.privacy import Epsilon
from labels_party.mechanisms.additive import choose_lattice, fitted_peak, proved
from labels_party.mechanisms.one_bit import constant_channel


def best_width(epsilon: Epsilon, cells: int, loss: str | Loss) -> int:
    """Find the width r = 1 … cells of the upper step that minimises E|noise| for the absolute loss, E noise² for any
    other.

    The noise is taken without clipping: its worst case over labels, independent of any prior. For many cells r/cells is
    Geng & Viswanath's γ*: 1/(1 + e^(ε/2)) for |x|.
    """
    b = math.exp(-float(epsilon))
    r, s = np.arange(1, cells + 1, dtype=np.float64), np.arange(cells, dtype=np.float64)
    peak = -math.expm1(-float(epsilon)) / (2 * r + 2 * b * (cells - r) + math.expm1(-float(epsilon)))
    # moments of the distance within a period, the lower step counting b; and over periods, weighted by bⁿ
    inside = [np.cumsum(s**p) * (1 - b) + b * float(np.sum(s**p)) for p in range(3)]
    gap = -math.expm1(-float(epsilon))
    over = [1 / gap, b / gap**2, b * (1 + b) / gap**3]
    if get_loss(loss).name == "absolute":
        cost = peak * (cells * over[1] * inside[0] + over[0] * inside[1])
    else:
        cost = peak * (cells**2 * over[2] * inside[0] + 2 * cells * over[1] * inside[1] + over[0] * inside[2])
    return int(np.argmin(cost)) + 1


def staircase_channel(
    domain: Domain, epsilon: Epsilon, loss: str | Loss, *, discrete: bool = False, unclipped: bool = False
) -> Channel:
    """Build staircase noise for the sensitivity y_max − y_min, its ε proved to be at most `epsilon` (Geng & Viswanath
    2014).

    A domain of one value gives the constant channel. Raises InvalidEpsilon, InvalidMechanism.
    """
    if domain.k == 1:
        return constant_channel(domain, float(domain.values[0]), float(domain.values[0]))
    lattice = choose_lattice(domain, epsilon, discrete=discrete, unclipped=unclipped)
    width, cells = best_width(lattice.epsilon, lattice.cells, loss), lattice.cells
    gap = -math.expm1(-float(lattice.epsilon))
    share = gap / (2 * width + 2 * (1 - gap) * (cells - width) - gap)
    peak = fitted_peak(lattice, share, partial(staircase_period, lattice.epsilon, cells, width))
    channel = StaircaseChannel(
        domain=domain, noise_epsilon=lattice.epsilon, cells=cells, reach=lattice.reach, peak=peak, width=width
    )
    return proved(channel, epsilon)
