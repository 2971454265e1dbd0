"""Every mechanism under its name, so that the release pipeline has no special cases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import cast

import numpy as np
import numpy.typing as npt

from labels_party.mechanisms.additive import discrete_laplace_channel, sample_additive
from labels_party.mechanisms.bins import solve_bins
from labels_party.mechanisms.entropy import Keystream
from labels_party.mechanisms.one_bit import one_bit_channel, sample_one_bit
from labels_party.mechanisms.prior import check_prior
from labels_party.mechanisms.randomized_response import rr_weights, sample_rr
from shared.channel import AdditiveChannel, Channel, OneBitChannel, RRChannel
from shared.channel_base import UIntArray
from shared.domain import Domain
from shared.errors import InvalidMechanism, InvalidPrior
from shared.losses import Loss
from shared.privacy import Epsilon

FloatArray = npt.NDArray[np.float64]
Options = Mapping[str, object]
Design = Callable[[Domain, FloatArray | None, Epsilon, str | Loss, Options], Channel]
SAMPLE_CHUNK = 1 << 18


@dataclass(frozen=True)
class Mechanism:
    """A named family of channels; pure apart from the randomness of `sample`.

    `design(domain, prior, epsilon, loss, options)` gives the channel, of ε at most `epsilon`, exactly; `prior` is
    float64[k] (private or public) or None where `needs_prior` is false. `sample(channel, index)` draws an output index
    (unsigned[n], the smallest type that holds m) for each label position (integers [n]), under a fresh keystream.
    """

    name: str
    needs_prior: bool
    design: Design
    sample: Callable[[Channel, npt.NDArray[np.int64]], UIntArray]
    options: frozenset[str] = frozenset()


def sample(channel: Channel, index: npt.NDArray[np.int64]) -> UIntArray:
    """unsigned[n]: one independent draw per label position 0 … k − 1 of `index`, exactly as the channel's weights say.

    Safe to call chunk by chunk: every call takes fresh randomness. Raises InvalidMechanism (a position outside the
    domain, an unknown kind) or RandomnessUnavailable.
    """
    if index.size and (int(index.min()) < 0 or int(index.max()) >= channel.k):
        raise InvalidMechanism("A label position lies outside the domain of the channel.")
    if isinstance(channel, RRChannel):
        stream = Keystream()
        table = cast("npt.NDArray[np.uint32]", channel.bins)
        out = np.empty(index.size, dtype=table.dtype)
        for start in range(0, index.size, SAMPLE_CHUNK):
            own = table[index[start : start + SAMPLE_CHUNK]]
            out[start : start + SAMPLE_CHUNK] = sample_rr(own, channel.d, channel.A, channel.B, stream)
        return cast(UIntArray, out)
    if isinstance(channel, OneBitChannel):
        return cast(UIntArray, sample_one_bit(index, channel, Keystream()))
    if isinstance(channel, AdditiveChannel):
        return sample_additive(index, channel)
    raise InvalidMechanism(f"No sampler for channels of kind '{channel.kind}'.")


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
    domain: Domain, prior: FloatArray | None, epsilon: Epsilon, loss: str | Loss, options: Options
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


def _one_bit(domain: Domain, prior: FloatArray | None, epsilon: Epsilon, loss: str | Loss, options: Options) -> Channel:
    clip = options.get("clip")
    if clip is None:
        return one_bit_channel(domain, epsilon)
    try:
        low, high = (Decimal(str(end)) for end in cast("tuple[object, object]", clip))
    except (InvalidOperation, TypeError, ValueError):
        raise InvalidMechanism("The option 'clip' is a pair of decimal numbers, lower end first.") from None
    return one_bit_channel(domain, epsilon, (low, high))


def _discrete_laplace(
    domain: Domain, prior: FloatArray | None, epsilon: Epsilon, loss: str | Loss, options: Options
) -> Channel:
    return discrete_laplace_channel(domain, epsilon)


def _checked(mechanism: str, allowed: frozenset[str], design: Design) -> Design:
    def checked(
        domain: Domain, prior: FloatArray | None, epsilon: Epsilon, loss: str | Loss, options: Options
    ) -> Channel:
        if not set(options) <= allowed:
            raise InvalidMechanism(f"{mechanism} has no such option; it knows {', '.join(sorted(allowed)) or 'none'}.")
        return design(domain, prior, epsilon, loss, options)

    return checked


def _mechanism(name: str, design: Design, *, needs_prior: bool, options: frozenset[str] = frozenset()) -> Mechanism:
    return Mechanism(name, needs_prior, _checked(name, options, design), sample, options)


MECHANISMS: dict[str, Mechanism] = {
    mechanism.name: mechanism
    for mechanism in (
        _mechanism("rr-on-bins", _rr_on_bins, needs_prior=True),
        _mechanism("one-bit", _one_bit, needs_prior=False, options=frozenset({"clip"})),
        _mechanism("discrete-laplace", _discrete_laplace, needs_prior=False),
    )
}


def get_mechanism(name: str) -> Mechanism:
    """The mechanism of that name. Raises InvalidMechanism listing the known ones."""
    if name not in MECHANISMS:
        raise InvalidMechanism(f"Unknown mechanism; known ones are {', '.join(MECHANISMS)}.")
    return MECHANISMS[name]
