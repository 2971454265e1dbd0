"""Subset selection (Wang et al. 2016; Ye & Barg 2018): a class becomes a subset of d of the k classes.

Under uniform chances no ε-DP randomizer of classes tells more than a random subset of about k/(e^ε + 1) classes that is
e^ε times likelier if it holds the label (Ye & Barg 2018); for d = 1 it is randomized response. All subsets of d are too
many for a message. Their worth depends on how often pairs of classes share a subset, so a list with pairs nearly even
is as good: the shifts of t base blocks, which one table draws (`label_dp.channels.subsets`).

Measured against all subsets of d, for k = 3 to 100 and ε = 0.05 to 3: the share of information under uniform classes is
the same, since it depends on d alone; the variance of unbiased shares of the classes is at most 2 % above theirs, for d
= 2 and 3 up to 3.2 %. One block often costs 20 % and more, two blocks 3 to 20 %, four 1 to 8 %. Projective planes,
whose pairs are exactly even (Feldman et al. 2022), have sizes that fit k and ε less well: they lose 1 to 6 % for k =
100 and ε ≤ 3, up to a half for k = 5. More outputs cost the learner memory: it holds a number for each output and row.

Precondition: 1 to 128 labels; classes are 100 at most. Guarantee: A ≤ e^ε·B, in whole numbers. An uneven list costs
utility, never privacy.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import Channel, FloatArray, N
from label_dp.channels.dense import MAX_DENSE_CELLS
from label_dp.channels.subsets import SubsetChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidMechanism
from label_dp.privacy import Epsilon
from labels_party.mechanisms.one_bit import constant_channel

MAX_LABELS = 128
MOST_BLOCKS = 8
EVEN = 1.02  # variance of unbiased shares over that of even pairs at which no more blocks are added
SWEEPS = 20

Table = npt.NDArray[np.int64]


def subset_channel(domain: Domain, epsilon: Epsilon) -> Channel:
    """Build subset selection with the d of the largest share of information under uniform labels.

    One value gives the constant channel. Raises InvalidMechanism above 128 labels, InvalidEpsilon (0, or too small).
    """
    if domain.k == 1:
        return constant_channel(domain, float(domain.values[0]), float(domain.values[0]))
    if domain.k > MAX_LABELS:
        raise InvalidMechanism(f"Subset selection takes at most {MAX_LABELS} labels; take a larger step, or another.")
    odds = Epsilon.parse(epsilon, positive=True).exp_lower()
    blocks = even_blocks(domain.k, subset_size(domain.k, epsilon))
    r, m = sum(map(len, blocks)), len(blocks) * domain.k
    share = r * odds + m - r
    B = -(-N * share.denominator // share.numerator)
    A = (N - (m - r) * B) // r
    if A <= B:
        raise InvalidEpsilon("This ε is too small for so many subsets: a label's own ones would not be likelier.")
    return SubsetChannel(domain=domain, blocks=tuple(np.array(block) for block in blocks), A=A, B=B)


def subset_size(k: int, epsilon: Epsilon) -> int:
    """Find the d of 1 … k/2 of the largest φ² under uniform labels; the smallest of equals."""
    return int(np.argmax(_even_shares(k, epsilon))) + 1


def even_share(k: int, epsilon: Epsilon) -> float:
    """Return φ² of subset selection on k ≥ 2 uniform labels: the largest of any mechanism here without a prior."""
    return float(np.max(_even_shares(k, epsilon)))


def _even_shares(k: int, epsilon: Epsilon) -> FloatArray:
    """Return φ² of subsets of 1 … k/2 of k uniform labels."""
    odds, d = min(float(epsilon.exp_lower()), 2.0**62), np.arange(1.0, k // 2 + 1)
    return np.asarray((k * (d * odds**2 + k - d) / (d * odds + k - d) ** 2 - 1.0) / (k - 1), np.float64)


@cache
def even_blocks(k: int, d: int) -> tuple[tuple[int, ...], ...]:
    """Find base blocks of d of k positions, from 0 on each, whose shifts hold pairs about equally often.

    Takes the fewest of 1, 2, 4 … blocks that are even enough, MOST_BLOCKS or 2²⁰ weights otherwise.
    """
    t = 1
    while True:
        table = _even_table(k, d, t)
        if _unevenness(table) <= EVEN or 2 * t > min(MOST_BLOCKS, MAX_DENSE_CELLS // k**2):
            break
        t *= 2
    places = [np.flatnonzero(row) for row in table]
    return tuple(tuple((block - block[0]).tolist()) for block in places)


def _unevenness(table: Table) -> float:
    """Return the variance of unbiased shares over that of even pairs, for the blocks of `table` int64[t, k] of 0 and
    1: the eigenvalues of the table of pairs are Fourier coefficients."""
    strengths = np.sum(np.abs(np.fft.fft(table, axis=1)) ** 2, axis=0)[1:]
    return float(np.mean(strengths) * np.mean(1.0 / np.maximum(strengths, 1e-9)))


def _even_table(k: int, d: int, t: int) -> Table:
    """Fill int64[t, k] with d ones a row, so that differences of their positions occur about equally often.

    Adds position by position, then moves single ones while the squares of the counts fall. Whole numbers, no chance.
    """
    table, counts = np.zeros((t, k), np.int64), np.zeros(k, np.int64)
    plus = (np.arange(k)[:, None] + np.arange(k)) % k
    minus = (np.arange(k)[:, None] - np.arange(k)) % k

    def add(row: Table, at: int | None) -> bool:
        """Put a one where it is best, or back `at` its place; returns whether it is new there."""
        differences = row[plus] + row[minus]  # that each position would add
        differences[:, 0] = 0
        cost = 2 * differences @ counts + np.sum(differences**2, axis=1)
        cost[row > 0] = np.iinfo(np.int64).max
        best = int(np.argmin(cost))
        place = best if at is None or cost[best] < cost[at] else at
        row[place] = 1
        counts[:] += differences[place]
        return place != at

    for row in table:
        for _ in range(d):
            add(row, None)
    for _ in range(SWEEPS):
        moved = False
        for row in table:
            for at in np.flatnonzero(row).tolist():
                row[at] = 0
                drop = row[(at + np.arange(k)) % k] + row[(at - np.arange(k)) % k]
                drop[0] = 0
                counts -= drop
                moved |= add(row, at)
        if not moved:
            break
    return table
