"""k-ary randomized response on all labels, and RRWithPrior, randomized response on the likeliest labels only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import Channel, FloatArray, IntArray, UIntArray
from label_dp.channels.rr import RRChannel
from label_dp.channels.top_labels import MAX_KEPT, TopLabelsChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism
from label_dp.privacy import Epsilon
from labels_party.mechanisms.classes import most_informative
from labels_party.mechanisms.entropy import Uint64Source
from labels_party.mechanisms.one_bit import constant_channel
from labels_party.mechanisms.randomized_response import CHUNK, rr_weights, sample_rr

ROUNDING = 1e-12  # of the probability of a right output, within which fewer labels are preferred
MAX_LABELS = 1 << 14  # of randomized response on all labels, which its manifest lists


def rr_channel(domain: Domain, epsilon: Epsilon) -> Channel:
    """Build k-ary randomized response (Warner 1965; Kairouz, Oh & Viswanath 2016): the label itself with weight A, any
    other with B. Corrected outputs are unbiased.

    One value gives the constant channel. Raises InvalidMechanism above 2¹⁴ labels, InvalidEpsilon (0, or too small).
    """
    if domain.k == 1:
        return constant_channel(domain, float(domain.values[0]), float(domain.values[0]))
    if domain.k > MAX_LABELS:
        raise InvalidMechanism(
            f"Randomized response on all labels takes at most {MAX_LABELS} of them; take a larger step, or rr-on-bins."
        )
    A, B = rr_weights(Epsilon.parse(epsilon, positive=True), domain.k)
    return RRChannel(
        domain=domain,
        boundaries=np.arange(domain.k + 1),
        outputs=domain.values,
        A=A,
        B=B,
        bin_means=domain.values,
    )


def rr_with_prior_channel(domain: Domain, prior: FloatArray, epsilon: Epsilon) -> Channel:
    """Build RRWithPrior (Ghazi et al. 2021): randomized response on the d likeliest labels of `prior` float64[k], with
    the d that makes the output right most often; another label becomes any of the d with equal probability.

    For classes it is the d of the largest share of information, at least 2 (`classes`). Among equally likely labels the
    smaller ones count as likelier. d = 1 gives the constant channel of the likeliest label. At most 2¹⁵ labels are
    kept. Raises InvalidEpsilon.
    """
    order = np.argsort(-prior, kind="stable")
    if domain.nominal:
        return _on_likeliest(domain, order, most_informative(prior, epsilon), epsilon)
    odds = min(float(epsilon.exp_lower()), 2.0**62)
    counts = np.arange(1, min(domain.k, MAX_KEPT) + 1)
    right = np.cumsum(prior[order[: counts.size]]) * odds / (odds + counts - 1.0)
    d = int(counts[np.argmax(right >= right.max() * (1.0 - ROUNDING))])
    if d == 1:
        return constant_channel(domain, float(domain.values[order[0]]), float(prior @ domain.values))
    return _on_likeliest(domain, order, d, epsilon)


def _on_likeliest(domain: Domain, order: IntArray, d: int, epsilon: Epsilon) -> Channel:
    A, B = rr_weights(epsilon, d)
    return TopLabelsChannel(domain=domain, kept=np.sort(order[:d]), A=A, B=B)


def sample_top_labels(index: npt.NDArray[np.int64], channel: TopLabelsChannel, stream: Uint64Source) -> UIntArray:
    """Draw unsigned[n]: randomized response and a uniform output, from one word each; the label selects one of the two.

    Both are computed for every label. P = weight/2⁶⁴ exactly.
    """
    d, (whole, rest) = channel.d, channel.uniform_weights
    first = np.uint64(rest * (whole + 1))  # words of the outputs with one more; d ≥ 2, so below 2⁶⁴
    out = np.empty(index.size, dtype=np.min_scalar_type(d - 1))
    for start in range(0, index.size, CHUNK):
        own = channel.own[index[start : start + CHUNK]]
        inside = own < d
        response = sample_rr(np.where(inside, own, 0).astype(out.dtype), d, channel.A, channel.B, stream)
        u = stream.uint64(own.size)
        later = np.uint64(rest) + (u - first) // np.uint64(whole)  # wraps for the first ones, which do not use it
        uniform = np.where(u < first, u // np.uint64(whole + 1), later)
        out[start : start + CHUNK] = np.where(inside, response, uniform.astype(out.dtype))
    return out
