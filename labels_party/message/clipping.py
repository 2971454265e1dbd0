"""Clipping bounds bought with ε_clip: private quantiles of the labels, between which the release is drawn.

Each attempt draws its own bounds first; an abandoned attempt takes them with it unseen. The bounds are private, so
clipping to them, and choosing prior, bins and mechanism on the smaller domain, is post-processing:
ε_clip + ε_prior + ε_randomize = ε by sequential composition.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from label_dp.documents.manifest import Clipping
from label_dp.domain import Domain
from label_dp.errors import InvalidDomain, InvalidEpsilon, InvalidInput, InvalidMechanism
from label_dp.losses import Loss, MatrixLoss
from label_dp.prior_cells import prior_cells
from label_dp.privacy import ZERO, Epsilon
from labels_party.mechanisms.quantiles import (
    EACH,
    PLACES,
    candidate_quantiles,
    parse_quantile,
    plan_quantiles,
    scale_grid,
)

FloatArray = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Ends = tuple[int, int]


FAR_OUT = (
    "the bound may miss by more labels than lie beyond the quantile, and then falls anywhere outside: take a larger ε "
    "for it, or a quantile farther inside"
)


class Indexed(Protocol):
    """Labels as positions in a domain, chunk by chunk, with or without ids."""

    def chunks(self) -> Iterator[tuple[Any, npt.NDArray[Any]]]: ...

    def positions(self) -> Iterator[npt.NDArray[Any]]: ...


@dataclass(frozen=True)
class ClippedLabels:
    """Labels clipped to the part `ends` of their domain, as positions in that part."""

    labels: Indexed
    ends: Ends

    def chunks(self) -> Iterator[tuple[Any, npt.NDArray[Any]]]:
        for ids, index in self.labels.chunks():
            yield ids, self._within(index)

    def positions(self) -> Iterator[npt.NDArray[Any]]:
        return map(self._within, self.labels.positions())

    def _within(self, index: npt.NDArray[Any]) -> npt.NDArray[Any]:
        first, last = self.ends
        clipped: npt.NDArray[Any] = np.clip(index, first, last) - first
        return clipped


def parse_clipping(
    quantile: str | float | Sequence[Any] | None, epsilon: str | int | float | None
) -> tuple[tuple[str, ...], Epsilon]:
    """Return the quantiles in canonical spelling, and ε_clip.

    `quantile` is `Q` (the upper bound), `LOW:HIGH`, or a list of one or two. Without both parameters, returns () and 0.
    Raises InvalidInput (also if only one is there), InvalidEpsilon.
    """
    if quantile is None and epsilon is None:
        return (), ZERO
    if quantile is None or epsilon is None:
        raise InvalidInput("Buying a clipping bound takes both: its quantile, and the ε that it may cost.")
    parts = quantile.split(":") if isinstance(quantile, str) else quantile
    exact = [parse_quantile(one) for one in (parts if isinstance(parts, Sequence) else [parts])]
    if len(exact) not in (1, 2) or any(a >= b for a, b in itertools.pairwise(exact)):
        raise InvalidInput("Clip quantiles are one, of the upper bound, or two, LOW:HIGH, the lower first.")
    texts = tuple(f"0.{int(one * 10**PLACES):0{PLACES}d}".rstrip("0") for one in exact)
    return texts, Epsilon.parse(epsilon, positive=True, name="ε for the clipping bound")


def check_clipping(
    quantiles: Sequence[str], epsilon: Epsilon, total: Epsilon, options: Any, domain: Domain, n: int
) -> None:
    """Refuse what can be refused without labels. Raises InvalidInput and its kinds."""
    if not quantiles:
        return
    if domain.k < 2:
        raise InvalidDomain("The domain has one value only: there is no clipping bound to buy.")
    if options.get("clip", "auto") != "auto":
        raise InvalidMechanism(
            "Clipping ends of one bit are given (clip) or bought (clip_quantile), not both ('auto' goes with bought)."
        )
    if epsilon >= total:
        raise InvalidEpsilon(
            "ε for the clipping bound must be smaller than the total ε; nothing would be left for the labels."
        )
    rank_error(quantiles, epsilon, max(n, 1), domain)


def candidates(domain: Domain) -> Counts:
    """Return int64[m], the positions that a bound may take: a logarithmic grid around the value 0, or around the end of
    the domain nearest to 0. A bound is needed to within a few percent, and domains are often declared too wide."""
    return scale_grid(domain.k, int(domain.index(np.zeros(1))[0][0]))


def buy(counts: Counts, domain: Domain, quantiles: Sequence[str], epsilon: Epsilon) -> Ends:
    """Draw the clipping positions (first, last), first < last: ε-DP, from int64[k] counts, k ≥ 2.

    Uses the exponential mechanism on ranks among the domain's `candidates`. If all quantiles fall on one position, the
    part is widened to two, upwards if possible; that reads no labels. Running time depends on k alone.
    Raises InvalidInput, RandomnessUnavailable.
    """
    grid, upto = candidates(domain), np.cumsum(counts)
    n = int(upto[-1])
    plan = plan_quantiles(quantiles, epsilon, n, grid.size, method=EACH)
    positions = grid[candidate_quantiles(upto[grid] - counts[grid], upto[grid], n, plan)].tolist()
    return _apart(positions, domain.k)


def _apart(positions: list[int], k: int) -> Ends:
    first, last = positions[0] if len(positions) > 1 else 0, positions[-1]
    if first < last:
        return first, last
    return (first, first + 1) if first + 1 < k else (first - 1, first)


def expected_ends(prior: FloatArray, quantiles: Sequence[str]) -> Ends:
    """Return what `buy` would return if labels followed `prior` float64[k] and ε were large."""
    reached = np.cumsum(prior)
    positions = [min(int(np.searchsorted(reached, float(q))), prior.size - 1) for q in quantiles]
    return _apart(positions, prior.size)


def rank_error(quantiles: Sequence[str], epsilon: Epsilon, n: int, domain: Domain) -> float:
    """Bound by how many labels a bound misses its quantile beyond the best candidate's miss, with probability 19/20.
    Reads public facts only."""
    return plan_quantiles(quantiles, epsilon, n, candidates(domain).size, method=EACH).rank_error


def far_out(quantiles: Sequence[str], epsilon: Epsilon, n: int, domain: Domain) -> str | None:
    """Return a warning if bounds may be useless at this ε, else None. Reads public facts only."""
    shares = [float(quantile) for quantile in quantiles]
    beyond = n * min(1.0 - shares[-1], *(shares[:1] if len(shares) > 1 else ()), 1.0)
    return None if rank_error(quantiles, epsilon, n, domain) < beyond else FAR_OUT


def clip_prior(prior: FloatArray, ends: Ends) -> FloatArray:
    """Return the prior of the clipped labels, float64[last − first + 1]."""
    first, last = ends
    part = prior[first : last + 1].copy()
    part[0] += prior[:first].sum()
    part[-1] += prior[last + 1 :].sum()
    return part


def clip_cells(cells: npt.NDArray[np.int64] | None, part: Domain) -> npt.NDArray[np.int64] | None:
    """Return cells of the labels between the bounds: as many as planned, at most one per label."""
    return None if cells is None else prior_cells(part.k, cells.size - 1, part.from_zero)


def clip_loss(loss: str | Loss, ends: Ends) -> str | Loss:
    """Restrict a loss matrix to the labels between the bounds; other losses stay."""
    if not isinstance(loss, MatrixLoss):
        return loss
    part = slice(ends[0], ends[1] + 1)
    return MatrixLoss(loss.row_labels[part], loss.outputs, loss.values[part])


def describe(quantiles: Sequence[str], epsilon: Epsilon, public: Domain, domain: Domain) -> Clipping | None:
    """Return the manifest's description of the bounds of `domain`; None if none were bought."""
    if not quantiles:
        return None
    ends = [format(domain.value(0), "f"), format(domain.value(domain.k - 1), "f")]
    return Clipping(quantiles=list(quantiles), bounds=ends[-len(quantiles) :], epsilon=epsilon, public_domain=public)
