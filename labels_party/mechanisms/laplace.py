"""Laplace noise, continuous (on a fine lattice) and discrete (on the domain's values), clipped or not."""

from __future__ import annotations

import math
from functools import partial

from label_dp.channels.base import Channel
from label_dp.channels.laplace import LaplaceChannel
from label_dp.channels.noise_weights import laplace_period
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms.additive import choose_lattice, fitted_peak, proved
from labels_party.mechanisms.one_bit import constant_channel


def laplace_channel(domain: Domain, epsilon: Epsilon, *, discrete: bool = False, unclipped: bool = False) -> Channel:
    """Build noise of scale (y_max − y_min)/ε, its ε proved to be at most `epsilon` (Dwork et al. 2006; discrete: Ghosh
    et al. 2012).

    A domain of one value gives the constant channel. Raises InvalidEpsilon, InvalidMechanism.
    """
    if domain.k == 1:
        return constant_channel(domain, float(domain.values[0]), float(domain.values[0]))
    lattice = choose_lattice(domain, epsilon, discrete=discrete, unclipped=unclipped)
    share = math.tanh(float(lattice.epsilon) / lattice.cells / 2)
    peak = fitted_peak(lattice, share, partial(laplace_period, lattice.epsilon, lattice.cells))
    channel = LaplaceChannel(
        domain=domain, noise_epsilon=lattice.epsilon, cells=lattice.cells, reach=lattice.reach, peak=peak
    )
    return proved(channel, epsilon)
