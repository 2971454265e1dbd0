"""The choice of a randomizer: that of the smallest expected model error under a prior that is public or private.

The choice reads the domain, the prior, ε, the loss and n, so it is post-processing of private or public inputs and
costs no ε. Trainable losses are judged by `model_error`; a loss given as a matrix, which is not trainable, by the
expected label loss, for which RR-on-Bins is the best of its family (Ghazi et al. 2022, Theorem 5).

Classes, which are unordered if there are more than two, are judged by the remaining share of information. For two
labels nothing is judged: any ε-DP channel of them is randomized response followed by a function that does not read the
label (Kairouz, Oh & Viswanath 2014), so no loss and no prior can make another one better, and no prior is bought.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import Channel
from label_dp.channels.information import share_of_information
from label_dp.channels.subsets import SubsetChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidLoss, InvalidMechanism
from label_dp.losses import LOG, Loss, MatrixLoss, get_loss
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.model_error import model_error

FloatArray = npt.NDArray[np.float64]

AUTO = "auto"
LARGEST_CHANNEL = 1 << 19  # bytes in the manifest, half of its limit
NAMED = 3  # runners-up in the reason
DIGITS = 12  # of a share of information; rounding alone may differ beyond them


@dataclass(frozen=True)
class Candidate:
    """Mechanism with options that `auto` may choose, on domains of at most `largest_k` labels."""

    name: str
    options: Mapping[str, object]
    called: str
    largest_k: int = 1 << 62
    slow: bool = False


CANDIDATES = (
    Candidate("rr-on-bins", {}, "rr-on-bins"),
    Candidate("one-bit", {}, "one-bit on the whole domain", 1_000_000),
    Candidate("one-bit", {"clip": "auto"}, "one-bit with clip auto"),
    Candidate("balanced", {}, "balanced", 10_000, slow=True),
    Candidate("unbiased", {}, "unbiased", 10_000, slow=True),
    Candidate("discrete-staircase", {}, "discrete staircase", 20_000),
    Candidate("rr", {}, "k-ary randomized response", 512),
)
RR = CANDIDATES[-1]
OF_CLASSES = (
    RR,
    Candidate("rr-with-prior", {}, "randomized response on the likeliest classes"),
    Candidate("subset-selection", {}, "subset selection"),
)
WHY_TWO = (
    f"chosen by auto: {RR.called}; of two labels any other randomizer of the same ε is it and more noise, whatever "
    "the prior and the loss"
)


@dataclass(frozen=True)
class Rating:
    """A candidate's channel and its ranking figure: expected model error, label loss, or 1 − φ²."""

    candidate: Candidate
    channel: Channel
    figure: float


@dataclass(frozen=True)
class Choice:
    """Choice: `ranking` holds every candidate that fits, the chosen one first, the others from the best on."""

    ranking: tuple[Rating, ...]
    why: str

    @property
    def name(self) -> str:
        return self.ranking[0].candidate.name

    @property
    def channel(self) -> Channel:
        return self.ranking[0].channel


def needs_no_prior(domain: Domain, loss: str | Loss) -> bool:
    """Check whether `auto` takes randomized response here for any prior: a domain of two labels that the loss has as
    outputs (a matrix may have others only). Raises InvalidLoss."""
    candidates = get_loss(loss).candidates
    return domain.k == 2 and (candidates is None or bool(np.isin(domain.values, candidates).all()))


def choose(
    domain: Domain, prior: FloatArray, epsilon: Epsilon, loss: str | Loss, n: int, *, slow: bool = True
) -> Choice:
    """Choose the best of CANDIDATES for `n` labels that follow `prior` float64[k], at `epsilon` for the labels.

    For two labels it is randomized response, the only one in the ranking. For classes it has the largest share of
    information. Candidates that do not fit the domain or the ε are skipped, and without `slow` those that solve a
    linear program. Raises InvalidMechanism if none fits.
    """
    if domain.nominal:
        return _choose_of_classes(domain, prior, epsilon, n)
    ell, two = get_loss(loss), needs_no_prior(domain, loss)
    ratings = [
        judged
        for candidate in ((RR,) if two else CANDIDATES)
        if (slow or not candidate.slow) and (judged := _judge(candidate, domain, prior, epsilon, ell, n)) is not None
    ]
    if not ratings:
        raise InvalidMechanism("No mechanism fits this domain at this ε; take a larger ε or a coarser domain.")
    if two:
        return Choice((ratings[0],), WHY_TWO)
    ratings.sort(key=lambda judged: judged.figure)  # stable: of equals the simpler one
    best, others = ratings[0], ratings[1:]
    measure = "label loss" if isinstance(ell, MatrixLoss) else "model error"
    why = f"chosen by auto: {best.candidate.called}, expected {measure} {best.figure:.4g}"
    if others:
        why += "; next " + ", ".join(f"{j.candidate.called} {j.figure:.4g}" for j in others[:NAMED])
    return Choice((best, *others), why)


def _choose_of_classes(domain: Domain, prior: FloatArray, epsilon: Epsilon, n: int) -> Choice:
    ratings = []
    for candidate in OF_CLASSES:
        channel = MECHANISMS[candidate.name].design(domain, prior, epsilon, LOG, candidate.options, n)
        ratings.append(Rating(candidate, channel, 1.0 - share_of_information(channel, prior)))
    ratings.sort(key=lambda judged: round(judged.figure, DIGITS))  # stable: of equals the simpler one
    best, others = ratings[0], ratings[1:]
    share = 1.0 - best.figure
    why = (
        f"chosen by auto: {_called(best)}, share of information {share:.3g}, so that {n:,} labels tell as much as "
        f"{n * share:,.0f} without noise; next "
    )
    why += ", ".join(f"{_called(other)} {1.0 - other.figure:.3g}" for other in others)
    return Choice((best, *others), why)


def _called(rating: Rating) -> str:
    """Return the name of a candidate for classes, and on how many of them."""
    channel = rating.channel
    on = f"subsets of {channel.d}" if isinstance(channel, SubsetChannel) else f"{channel.m}"
    return f"{rating.candidate.called} ({on} of {channel.k})"


def _judge(
    candidate: Candidate, domain: Domain, prior: FloatArray, epsilon: Epsilon, loss: Loss, n: int
) -> Rating | None:
    mechanism = MECHANISMS.get(candidate.name)
    if mechanism is None or domain.k > candidate.largest_k or not set(candidate.options) <= mechanism.options:
        return None
    try:
        channel = mechanism.design(domain, prior, epsilon, loss, candidate.options, n)
        if len(json.dumps(channel.as_json())) > LARGEST_CHANNEL:
            return None
        if isinstance(loss, MatrixLoss):
            return Rating(candidate, channel, channel.expected_loss(prior, loss))
        return Rating(candidate, channel, float(model_error(channel, prior, n)["expected_model_error"]))
    except (InvalidMechanism, InvalidEpsilon, InvalidLoss):
        return None
