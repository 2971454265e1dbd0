"""Every mechanism under its name, so that the release pipeline has no special cases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from labels_party.mechanisms.balanced import balanced_channel
from labels_party.mechanisms.bins import solve_bins
from labels_party.mechanisms.clip import best_clip
from labels_party.mechanisms.exponential import exponential_channel
from labels_party.mechanisms.laplace import laplace_channel
from labels_party.mechanisms.one_bit import one_bit_channel
from labels_party.mechanisms.prior import check_prior
from labels_party.mechanisms.randomized_response import rr_weights
from labels_party.mechanisms.rr_with_prior import rr_channel, rr_with_prior_channel
from labels_party.mechanisms.sampling import sample
from labels_party.mechanisms.staircase import staircase_channel
from labels_party.mechanisms.unbiased import unbiased_channel
from shared.channel import Channel, RRChannel
from shared.channel_base import UIntArray
from shared.domain import Domain
from shared.errors import InvalidMechanism, InvalidPrior
from shared.losses import Loss
from shared.privacy import Epsilon

FloatArray = npt.NDArray[np.float64]
Options = Mapping[str, object]
ADDITIVE = frozenset({"unclipped"})
TYPICAL_ROWS = 100_000  # where a design depends on n and nobody said it


InnerDesign = Callable[[Domain, FloatArray | None, Epsilon, str | Loss, Options, int], Channel]


class Design(Protocol):
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
    """A named family of channels; pure apart from the randomness of `sample`.

    `design(domain, prior, epsilon, loss, options, n)` gives the channel, of ε at most `epsilon`, exactly; `prior` is
    float64[k] (private or public) or None where `needs_prior(options)` is false, `n` the (public) number of labels.
    `sample(channel, index)` draws an output index (unsigned[n], the smallest type that holds m) for each label position
    (integers [n]), under a fresh keystream.
    """

    name: str
    needs_prior: Callable[[Options], bool]
    design: Design
    sample: Callable[[Channel, npt.NDArray[np.int64]], UIntArray]
    options: frozenset[str] = frozenset()


def bin_means(prior: FloatArray, labels: FloatArray, boundaries: npt.NDArray[np.int64]) -> FloatArray:
    """float64[d]: E[y | bin] under `prior`; the plain mean of the labels where a bin has no mass."""
    means = np.empty(boundaries.size - 1)
    for j, (start, stop) in enumerate(itertools.pairwise(boundaries.tolist())):
        y, p = labels[start:stop], prior[start:stop]
        mass = float(np.sum(p))
        weights = p / mass if mass > 0 else np.full(y.size, 1.0 / y.size)
        means[j] = min(max(float(y[0] + np.sum(weights * (y - y[0]))), float(y[0])), float(y[-1]))
    return means


def _rr_on_bins(
    domain: Domain,
    prior: FloatArray | None,
    epsilon: Epsilon,
    loss: str | Loss,
    options: Options,
    n: int = TYPICAL_ROWS,
) -> Channel:
    if prior is None:
        raise InvalidPrior("RR-on-Bins needs a prior: an estimated one, a public one or the uniform one.")
    p = check_prior(prior, domain.k)
    bins = solve_bins(p, domain.values, epsilon, loss)
    A, B = rr_weights(epsilon, bins.values.size)
    return RRChannel(
        domain=domain,
        boundaries=bins.boundaries,
        outputs=bins.values,
        A=A,
        B=B,
        bin_means=bin_means(p, domain.values, bins.boundaries),
    )


def _one_bit(
    domain: Domain,
    prior: FloatArray | None,
    epsilon: Epsilon,
    loss: str | Loss,
    options: Options,
    n: int = TYPICAL_ROWS,
) -> Channel:
    clip = options.get("clip")
    if clip is None:
        return one_bit_channel(domain, epsilon)
    if clip == "auto":
        if prior is None:
            raise InvalidPrior("Clipping by the prior needs one: an estimated one, a public one or the uniform one.")
        ends = best_clip(domain, check_prior(prior, domain.k), epsilon, n) if domain.k > 1 else None
        return one_bit_channel(domain, epsilon, ends)
    try:
        low, high = (Decimal(str(end)) for end in cast("tuple[object, object]", clip))
    except (InvalidOperation, TypeError, ValueError):
        raise InvalidMechanism("The option 'clip' is 'auto' or a pair of decimal numbers, lower end first.") from None
    return one_bit_channel(domain, epsilon, (low, high))


def _unbiased(
    domain: Domain,
    prior: FloatArray | None,
    epsilon: Epsilon,
    loss: str | Loss,
    options: Options,
    n: int = TYPICAL_ROWS,
) -> Channel:
    if prior is None:
        raise InvalidPrior("The unbiased randomizer needs a prior: an estimated one, a public one or the uniform one.")
    return unbiased_channel(domain, check_prior(prior, domain.k), epsilon, loss)


def _balanced(
    domain: Domain, prior: FloatArray | None, epsilon: Epsilon, loss: str | Loss, options: Options, n: int
) -> Channel:
    if prior is None:
        raise InvalidPrior("The balanced randomizer needs a prior: an estimated one, a public one or the uniform one.")
    return balanced_channel(domain, check_prior(prior, domain.k), epsilon, n)


def _rr(
    domain: Domain, prior: FloatArray | None, epsilon: Epsilon, loss: str | Loss, options: Options, n: int
) -> Channel:
    return rr_channel(domain, epsilon)


def _rr_with_prior(
    domain: Domain, prior: FloatArray | None, epsilon: Epsilon, loss: str | Loss, options: Options, n: int
) -> Channel:
    if prior is None:
        raise InvalidPrior("RRWithPrior needs a prior: an estimated one, a public one or the uniform one.")
    return rr_with_prior_channel(domain, check_prior(prior, domain.k), epsilon)


def _flag(options: Options, name: str) -> bool:
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise InvalidMechanism(f"The option '{name}' is true or false.")
    return value


def _laplace(*, discrete: bool) -> InnerDesign:
    def design(
        domain: Domain, prior: FloatArray | None, epsilon: Epsilon, loss: str | Loss, options: Options, n: int
    ) -> Channel:
        return laplace_channel(domain, epsilon, discrete=discrete, unclipped=_flag(options, "unclipped"))

    return design


def _staircase(*, discrete: bool) -> InnerDesign:
    def design(
        domain: Domain, prior: FloatArray | None, epsilon: Epsilon, loss: str | Loss, options: Options, n: int
    ) -> Channel:
        return staircase_channel(domain, epsilon, loss, discrete=discrete, unclipped=_flag(options, "unclipped"))

    return design


def _exponential(
    domain: Domain, prior: FloatArray | None, epsilon: Epsilon, loss: str | Loss, options: Options, n: int
) -> Channel:
    return exponential_channel(domain, epsilon, tight=_flag(options, "tight"))


def _checked(mechanism: str, allowed: frozenset[str], design: InnerDesign) -> Design:
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
        return design(domain, prior, epsilon, loss, options, n)

    return checked


def always(_options: Options) -> bool:
    return True


def clips_by_prior(options: Options) -> bool:
    return options.get("clip") == "auto"


def never(_options: Options) -> bool:
    return False


def _mechanism(
    name: str, design: InnerDesign, *, needs_prior: Callable[[Options], bool], options: frozenset[str] = frozenset()
) -> Mechanism:
    return Mechanism(name, needs_prior, _checked(name, options, design), sample, options)


MECHANISMS: dict[str, Mechanism] = {
    mechanism.name: mechanism
    for mechanism in (
        _mechanism("rr-on-bins", _rr_on_bins, needs_prior=always),
        _mechanism("one-bit", _one_bit, needs_prior=clips_by_prior, options=frozenset({"clip"})),
        _mechanism("unbiased", _unbiased, needs_prior=always),
        _mechanism("balanced", _balanced, needs_prior=always),
        _mechanism("rr", _rr, needs_prior=never),
        _mechanism("rr-with-prior", _rr_with_prior, needs_prior=always),
        _mechanism("laplace", _laplace(discrete=False), needs_prior=never, options=ADDITIVE),
        _mechanism("discrete-laplace", _laplace(discrete=True), needs_prior=never, options=ADDITIVE),
        _mechanism("staircase", _staircase(discrete=False), needs_prior=never, options=ADDITIVE),
        _mechanism("discrete-staircase", _staircase(discrete=True), needs_prior=never, options=ADDITIVE),
        _mechanism("exponential", _exponential, needs_prior=never, options=frozenset({"tight"})),
    )
}


def get_mechanism(name: str) -> Mechanism:
    """The mechanism of that name. Raises InvalidMechanism listing the known ones."""
    if name not in MECHANISMS:
        raise InvalidMechanism(f"Unknown mechanism; known ones are auto, {', '.join(MECHANISMS)}.")
    return MECHANISMS[name]
