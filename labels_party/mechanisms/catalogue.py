"""Every mechanism under its name, so that the release pipeline has no special cases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import Channel, UIntArray
from label_dp.channels.rr import RRChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism, InvalidPrior
from label_dp.losses import Loss
from label_dp.numbers import decimal_of
from label_dp.privacy import Epsilon
from label_dp.schemas.release import MECHANISMS as NAMES
from labels_party.mechanisms.balanced import balanced_channel
from labels_party.mechanisms.bins import solve_bins
from labels_party.mechanisms.clip import best_clip
from labels_party.mechanisms.exponential import exponential_channel
from labels_party.mechanisms.laplace import laplace_channel
from labels_party.mechanisms.one_bit import one_bit_channel, one_bit_weights
from labels_party.mechanisms.prior import check_prior
from labels_party.mechanisms.randomized_response import rr_weights
from labels_party.mechanisms.rr_with_prior import rr_channel, rr_with_prior_channel
from labels_party.mechanisms.sampling import sample
from labels_party.mechanisms.staircase import staircase_channel
from labels_party.mechanisms.subset_selection import subset_channel
from labels_party.mechanisms.unbiased import unbiased_channel

FloatArray = npt.NDArray[np.float64]
Options = Mapping[str, object]
ADDITIVE = frozenset({"unclipped"})
TYPICAL_ROWS = 100_000  # if a design depends on n and n was not given


class ChannelDesign(Protocol):
    """Function that designs a channel."""

    def __call__(
        self,
        domain: Domain,
        prior: FloatArray | None,
        epsilon: Epsilon,
        loss: str | Loss,
        options: Options,
        n: int = TYPICAL_ROWS,
    ) -> Channel: ...


@dataclass(frozen=True)
class Mechanism:
    """Named family of channels; pure except for the randomness of `sample`.

    `design(domain, prior, epsilon, loss, options, n)` returns the channel, of ε at most `epsilon`, exactly; `prior` is
    float64[k] (private or public) or None if `needs_prior(options)` is false, `n` the (public) number of labels.
    `sample(channel, index)` draws an output index (unsigned[n], the smallest type that holds m) for each label position
    (integers [n]), under a fresh keystream.
    """

    name: str
    needs_prior: Callable[[Options], bool]
    design: ChannelDesign
    sample: Callable[[Channel, npt.NDArray[np.int64]], UIntArray]
    options: frozenset[str] = frozenset()


@dataclass(frozen=True)
class DesignRequest:
    """Arguments of `ChannelDesign`, for which a channel is designed."""

    domain: Domain
    prior: FloatArray | None
    epsilon: Epsilon
    loss: str | Loss
    options: Options
    n: int

    def known_prior(self, needed_by: str) -> FloatArray:
        """Return the prior float64[k], checked. Raises InvalidPrior if it is missing or not a distribution."""
        if self.prior is None:
            raise InvalidPrior(f"{needed_by} needs a prior: an estimated one, a public one or the uniform one.")
        return check_prior(self.prior, self.domain.k)

    def flag(self, name: str) -> bool:
        """Read an option that is true or false, false by default. Raises InvalidMechanism for anything else."""
        value = self.options.get(name, False)
        if not isinstance(value, bool):
            raise InvalidMechanism(f"The option '{name}' is true or false.")
        return value


InnerDesign = Callable[[DesignRequest], Channel]


def bin_means(prior: FloatArray, labels: FloatArray, boundaries: npt.NDArray[np.int64]) -> FloatArray:
    """Compute E[y | bin] under `prior`, float64[d]; the plain mean of the labels if a bin has no mass."""
    means = np.empty(boundaries.size - 1)
    for j, (start, stop) in enumerate(itertools.pairwise(boundaries.tolist())):
        y, p = labels[start:stop], prior[start:stop]
        mass = float(np.sum(p))
        weights = p / mass if mass > 0 else np.full(y.size, 1.0 / y.size)
        means[j] = min(max(float(y[0] + np.sum(weights * (y - y[0]))), float(y[0])), float(y[-1]))
    return means


def _rr_on_bins(request: DesignRequest) -> Channel:
    prior, labels = request.known_prior("RR-on-Bins"), request.domain.values
    bins = solve_bins(prior, labels, request.epsilon, request.loss)
    A, B = rr_weights(request.epsilon, bins.values.size)
    return RRChannel(
        domain=request.domain,
        boundaries=bins.boundaries,
        outputs=bins.values,
        A=A,
        B=B,
        bin_means=bin_means(prior, labels, bins.boundaries),
    )


def _one_bit(request: DesignRequest) -> Channel:
    domain, epsilon, clip = request.domain, request.epsilon, request.options.get("clip")
    if clip is None:
        return one_bit_channel(domain, epsilon)
    if clip == "auto":
        prior = request.known_prior("Clipping by the prior")
        if domain.k == 1:
            return one_bit_channel(domain, epsilon)
        one_bit_weights(epsilon)  # refuses an ε of 0 before anything divides by it
        return one_bit_channel(domain, epsilon, best_clip(domain, prior, epsilon, request.n))
    try:
        low, high = (decimal_of(end) for end in cast("tuple[object, object]", clip))
    except (TypeError, ValueError):
        raise InvalidMechanism(
            "The option 'clip' is 'auto' or a pair of decimal numbers, lower end first; a command writes it A:B."
        ) from None
    return one_bit_channel(domain, epsilon, (low, high))


def _unbiased(request: DesignRequest) -> Channel:
    return unbiased_channel(
        request.domain, request.known_prior("The unbiased randomizer"), request.epsilon, request.loss
    )


def _balanced(request: DesignRequest) -> Channel:
    return balanced_channel(request.domain, request.known_prior("The balanced randomizer"), request.epsilon, request.n)


def _rr(request: DesignRequest) -> Channel:
    return rr_channel(request.domain, request.epsilon)


def _rr_with_prior(request: DesignRequest) -> Channel:
    return rr_with_prior_channel(request.domain, request.known_prior("RRWithPrior"), request.epsilon)


def _subset_selection(request: DesignRequest) -> Channel:
    return subset_channel(request.domain, request.epsilon)


def _laplace(*, discrete: bool) -> InnerDesign:
    def design(asked: DesignRequest) -> Channel:
        return laplace_channel(asked.domain, asked.epsilon, discrete=discrete, unclipped=asked.flag("unclipped"))

    return design


def _staircase(*, discrete: bool) -> InnerDesign:
    def design(asked: DesignRequest) -> Channel:
        unclipped = asked.flag("unclipped")
        return staircase_channel(asked.domain, asked.epsilon, asked.loss, discrete=discrete, unclipped=unclipped)

    return design


def _exponential(request: DesignRequest) -> Channel:
    return exponential_channel(request.domain, request.epsilon, tight=request.flag("tight"))


def _checked(mechanism: str, allowed: frozenset[str], design: InnerDesign) -> ChannelDesign:
    def checked(
        domain: Domain,
        prior: FloatArray | None,
        epsilon: Epsilon,
        loss: str | Loss,
        options: Options,
        n: int = TYPICAL_ROWS,
    ) -> Channel:
        if not set(options) <= allowed:
            raise InvalidMechanism(f"{mechanism} has no such option; it knows {', '.join(sorted(allowed)) or 'none'}.")
        return design(DesignRequest(domain, prior, epsilon, loss, options, n))

    return checked


def always(_options: Options) -> bool:
    """Return True."""
    return True


def clips_by_prior(options: Options) -> bool:
    """Return whether the clipping bounds come from the prior."""
    return options.get("clip") == "auto"


def never(_options: Options) -> bool:
    """Return False."""
    return False


def mechanism(
    name: str, design: InnerDesign, *, needs_prior: Callable[[Options], bool], options: frozenset[str] = frozenset()
) -> Mechanism:
    """Build a mechanism whose design checks its options."""
    return Mechanism(name, needs_prior, _checked(name, options, design), sample, options)


_HERE = {
    known.name: known
    for known in (
        mechanism("rr-on-bins", _rr_on_bins, needs_prior=always),
        mechanism("one-bit", _one_bit, needs_prior=clips_by_prior, options=frozenset({"clip"})),
        mechanism("unbiased", _unbiased, needs_prior=always),
        mechanism("balanced", _balanced, needs_prior=always),
        mechanism("rr", _rr, needs_prior=never),
        mechanism("rr-with-prior", _rr_with_prior, needs_prior=always),
        mechanism("subset-selection", _subset_selection, needs_prior=never),
        mechanism("laplace", _laplace(discrete=False), needs_prior=never, options=ADDITIVE),
        mechanism("discrete-laplace", _laplace(discrete=True), needs_prior=never, options=ADDITIVE),
        mechanism("staircase", _staircase(discrete=False), needs_prior=never, options=ADDITIVE),
        mechanism("discrete-staircase", _staircase(discrete=True), needs_prior=never, options=ADDITIVE),
        mechanism("exponential", _exponential, needs_prior=never, options=frozenset({"tight"})),
    )
}


def load(name: str) -> Mechanism:
    """Load a mechanism of this module, or the `MECHANISM` of the module of its name."""
    if name in _HERE:
        return _HERE[name]
    mechanism: Mechanism = import_module(f"labels_party.mechanisms.{name.replace('-', '_')}").MECHANISM
    return mechanism


MECHANISMS = {name: load(name) for name in NAMES}


def get_mechanism(name: str) -> Mechanism:
    """Return the mechanism of that name. Raises InvalidMechanism listing the known ones."""
    if name not in MECHANISMS:
        raise InvalidMechanism(f"Unknown mechanism; known ones are auto, {', '.join(MECHANISMS)}.")
    return MECHANISMS[name]
