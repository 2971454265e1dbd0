"""Which randomizer to take: the one of the smallest expected model error under a prior that is public or private.

The choice reads the domain, the prior, ε, the loss and n, so it is post-processing of what ε has paid for, and free.
Losses that can be trained are judged by `model_error`; a loss given as a matrix, which cannot, by the expected label
loss, where RR-on-Bins is the best of its family (Ghazi et al. 2022, Theorem 5).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.model_error import model_error
from shared.channel import Channel
from shared.domain import Domain
from shared.errors import InvalidEpsilon, InvalidMechanism
from shared.losses import Loss, MatrixLoss, get_loss
from shared.privacy import Epsilon

FloatArray = npt.NDArray[np.float64]

AUTO = "auto"
LARGEST_CHANNEL = 1 << 19  # bytes in the manifest, half of what that may have
NAMED = 3  # runners-up in the reason


@dataclass(frozen=True)
class Candidate:
    """A mechanism with options that `auto` may take, on domains of at most `largest_k` labels."""

    name: str
    options: Mapping[str, object]
    called: str
    largest_k: int = 1 << 62


CANDIDATES = (
    Candidate("rr-on-bins", {}, "rr-on-bins"),
    Candidate("one-bit", {}, "one-bit on the domain's ends"),
    Candidate("one-bit", {"clip": "auto"}, "one-bit, clipped"),
    Candidate("balanced", {}, "balanced", 10_000),
    Candidate("unbiased", {}, "unbiased", 10_000),
    Candidate("rr", {}, "k-ary randomized response", 512),
)


@dataclass(frozen=True)
class Choice:
    """`channel` of the mechanism `name`; `ranking` holds (what it is called, its figure), the best first."""

    name: str
    channel: Channel
    why: str
    ranking: tuple[tuple[str, float], ...]


def choose(domain: Domain, prior: FloatArray, epsilon: Epsilon, loss: str | Loss, n: int) -> Choice:
    """The best of CANDIDATES for `n` labels that follow `prior` float64[k], at `epsilon` for the labels.

    Candidates that do not fit the domain or the ε are passed over. Raises InvalidMechanism where none fits.
    """
    ell = get_loss(loss)
    by_label = isinstance(ell, MatrixLoss)
    found: list[tuple[float, int, Candidate, Channel]] = []
    for place, candidate in enumerate(CANDIDATES):
        mechanism = MECHANISMS.get(candidate.name)
        if mechanism is None or domain.k > candidate.largest_k or not set(candidate.options) <= mechanism.options:
            continue
        try:
            channel = mechanism.design(domain, prior, epsilon, ell, candidate.options, n)
            if len(json.dumps(channel.as_json())) > LARGEST_CHANNEL:
                continue
            figure = channel.expected_loss(prior, ell) if by_label else _model_error(channel, prior, n)
        except (InvalidMechanism, InvalidEpsilon):
            continue
        found.append((figure, place, candidate, channel))
    if not found:
        raise InvalidMechanism("No mechanism fits this domain at this ε; take a larger ε or a coarser domain.")
    found.sort(key=lambda f: f[:2])
    (figure, _, best, channel), others = found[0], found[1:]
    measure = "label loss" if by_label else "model error"
    why = f"chosen by auto: expected {measure} {figure:.4g}"
    if others:
        why += ", next " + ", ".join(f"{c.called} {value:.4g}" for value, _, c, _ in others[:NAMED])
    return Choice(best.name, channel, why, tuple((c.called, value) for value, _, c, _ in found))


def _model_error(channel: Channel, prior: FloatArray, n: int) -> float:
    return float(model_error(channel, prior, n)["expected_model_error"])
