"""The choice of crossings: by the label variance that each would explain, from corrected labels alone.

Effects of all categories and of bins of all numbers are estimated first, in every fold on the other rows. With group
sums s_g over n_g held-out residuals, the method of moments gives the variance τ² of a candidate's effects and the noise
σ² of a row; a shrunken effect explains Σ n_g·τ⁴/(τ² + σ²/n_g)/n. (In-sample residuals would hide it: main effects of
noisy labels take up thousands of degrees of freedom.) Candidates are values of numbers, then pairs, each by falling
explained variance. A candidate is fitted together with the effects of its own sides, which may have absorbed part of it
as noise. It is kept if it lowers the held-out squares by more than CLEAR standard errors, and later candidates are
judged beside it. It must lower as clearly the held-out residuals of trees: trees find many crossings by themselves.
(Humidity on working days is a proxy for the hour, which trees use anyway.) Reads corrected labels only, so it costs no
ε.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np
import numpy.typing as npt

from features_party.training.crossings import FEWEST_GROUPS, MOST_GROUPS, Crossing, CrossingSide, joined
from features_party.training.draws import Draws, dealt, shuffled
from features_party.training.effects import FOLDS, EffectMoments, Effects, fit_effects, out_of_fold
from features_party.training.encoding import Encoded

FloatArray = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]
Left = Callable[[Encoded, FloatArray, Draws, FloatArray | None], FloatArray]

MOST_CROSSINGS = 6
TRIED = 4  # consecutive candidates that may fail
CLEAR = 3.0  # standard errors
LEAST_ROWS = 2000
REPEATED = 5.0  # mean rows per value, from which a number's values are groups
BINS = 24
CUT_BY = 20_000  # values; more would hardly move a quantile
ROUNDS = 3
COUNTED = 1 << 22  # places up to which counting is quicker than sorting
ROWS = 1 << 21  # sampled at random; more would not change the choice
SMALLEST_SHARE = 1e-3  # of the variance explained so far


@dataclass(frozen=True)
class CandidateCrossing:
    """Candidate crossing; `beside` are the columns of `Growing` that describe its sides alone."""

    name: str
    sides: tuple[CrossingSide, ...]
    beside: tuple[int, ...]


@dataclass
class Growing:
    """Effects of a growing set of columns: codes int32[n] of each, and in each fold its table and the residuals
    float64[n] of all rows, of which those in the fold are held out."""

    fold: npt.NDArray[np.integer]
    codes: list[Codes]
    tables: list[list[FloatArray]]
    shrinkage: list[list[float]]
    residual: list[FloatArray]
    weights: FloatArray

    @classmethod
    def of(
        cls, codes: list[Codes], labels: FloatArray, draws: Draws, sizes: Sequence[int], weights: FloatArray
    ) -> Growing:
        fold = dealt(draws, FOLDS, "crossed effects")
        every = np.column_stack(codes)
        by_fold: list[Effects] = []
        residual = []
        for at in range(FOLDS):
            train = fold != at
            by_fold.append(fit_effects(every[train], labels[train], sizes, weights=weights[train]))
            sums = by_fold[-1].apply(every).astype(np.float64).sum(axis=1)
            residual.append(labels - float(np.average(labels[train], weights=weights[train])) - sums)
        tables = [list(one.tables) for one in by_fold]
        return cls(fold, codes, tables, [list(one.shrinkage) for one in by_fold], residual, weights)

    @property
    def held(self) -> FloatArray:
        """Out-of-fold residuals, float64[n]."""
        return np.asarray(np.choose(self.fold, self.residual), np.float64)

    def grown(self, codes: Codes, size: int, shrinkage: float, beside: Sequence[int]) -> Growing:
        """Add a column int32[n], after some rounds of backfitting it and the columns `beside` it."""
        more = Growing(self.fold, [*self.codes, codes], [], [], [], self.weights)
        for at in range(FOLDS):
            train = np.flatnonzero(self.fold != at)
            weights = self.weights[train]
            tables = [*self.tables[at], np.zeros(size)]
            lambdas = [*self.shrinkage[at], shrinkage]
            residual = self.residual[at].copy()
            columns = []
            for column in (len(self.codes), *beside):
                places = more.codes[column] + 1
                rows = np.bincount(places[train], weights, minlength=len(tables[column])).astype(np.float64)
                columns.append((column, places, places[train], rows + lambdas[column]))
            for _ in range(ROUNDS):
                for column, places, train_places, rows in columns:
                    old, rest = tables[column], residual[train]
                    sums = np.bincount(train_places, weights * (rest + old[train_places]), minlength=len(old))
                    tables[column] = sums / rows
                    residual += (old - tables[column])[places]
            more.tables.append(tables)
            more.shrinkage.append(lambdas)
            more.residual.append(residual)
        return more


def choose_crossings(
    encoded: Encoded,
    labels: FloatArray,
    draws: Draws,
    sizes: Sequence[int],
    number_names: Sequence[str],
    category_names: Sequence[str],
    done: Callable[[float], None] = lambda _share: None,
    weights: FloatArray | None = None,
    left: Left | None = None,
    among: frozenset[str] | None = None,
) -> tuple[tuple[Crossing, ...], tuple[float | None, ...]]:
    """Choose the crossings for labels float64[n], and for each the rows by which its effects are shrunk (None: as a
    category's).

    `number_names` are of the first numbers, those that come straight from columns; the others are not crossed.
    `weights` float64[n] have mean 1 (None: all equal). `left` returns the held-out residuals of trees (None: there are
    no trees). `among` limits the candidates by name.
    """
    if len(labels) > ROWS:
        rows = np.sort(shuffled(draws, "rows of crossed effects")[:ROWS])
        encoded, labels, draws = encoded.take(rows), labels[rows], draws[rows]
        weights = None if weights is None else weights[rows]
    if len(labels) < LEAST_ROWS or among == frozenset():
        return (), ()
    search = _Search(encoded, labels, draws, weights, left, list(sizes), len(number_names), among, done)
    categories = [(name, CrossingSide(at, sizes[at]), at) for at, name in enumerate(category_names) if sizes[at] > 2]
    numbers = list(_repeated(encoded, number_names, len(sizes)))
    search.take(CandidateCrossing(name, (side,), (at,)) for name, side, at in numbers)
    search.take(
        CandidateCrossing(f"{one} × {other}", (first, second), (at, beside))
        for (one, first, at), (other, second, beside) in combinations([*categories, *numbers], 2)
        if max(first.size, second.size) > FEWEST_GROUPS
    )
    return tuple(search.crossings), tuple(search.shrinkage)


def _repeated(encoded: Encoded, names: Sequence[str], first: int) -> list[tuple[str, CrossingSide, int]]:
    """List numbers with repeated values, and the columns of their bins."""
    sides = []
    for at, name in enumerate(names):
        column = encoded.numbers[:, at]
        values = np.unique(column[~np.isnan(column)])
        if 2 <= len(values) <= min(len(column) / REPEATED, MOST_GROUPS):
            sides.append((name, CrossingSide(at, len(values) + 1, values), first + at))
    return sides


def _usual(places: npt.NDArray[np.int64], beside: Codes | None) -> Codes:
    """Bin the number of rows that share a row's place, or their share of the rows at its place `beside`: int32[n]."""
    logs = _log_rows(places)
    return _bins(logs if beside is None else logs - _log_rows(beside))


def _log_rows(places: npt.NDArray[np.integer]) -> FloatArray:
    if int(places.max()) > COUNTED:
        places = np.unique(places, return_inverse=True)[1]
    return np.asarray(np.log(np.maximum(np.bincount(places), 1))[places], np.float64)


def _bins(column: npt.NDArray[np.floating]) -> Codes:
    present = ~np.isnan(column)
    if not present.any():
        return np.full(len(column), -1, np.int32)
    some = column[present]
    some = some[:: max(len(some) // CUT_BY, 1)]
    cuts = np.unique(np.quantile(some, np.linspace(0.0, 1.0, BINS + 1)[1:-1]))
    return np.where(present, np.searchsorted(cuts, column, side="right"), -1).astype(np.int32)


def _clear(gains: FloatArray) -> bool:
    return bool(gains.mean() > CLEAR * gains.std() / np.sqrt(len(gains)))


@dataclass
class _Search:
    encoded: Encoded
    labels: FloatArray
    draws: Draws
    weights: FloatArray | None
    left: Left | None
    sizes: list[int]
    numbers: int
    among: frozenset[str] | None
    done: Callable[[float], None]
    crossings: list[Crossing] = field(default_factory=list)
    shrinkage: list[float | None] = field(default_factory=list)
    _found: dict[tuple[int, bool], Codes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        codes = [self.encoded.codes[:, at] for at in range(len(self.sizes))]
        codes += [_bins(self.encoded.numbers[:, at]) for at in range(self.numbers)]
        sizes = [*self.sizes, *(BINS + 1 for _ in range(self.numbers))]
        weights = np.ones(len(self.labels)) if self.weights is None else self.weights
        self.growing = Growing.of(codes, self.labels, self.draws, sizes, weights)
        about = self.labels - np.average(self.labels, weights=weights)
        gain = float(np.mean(weights * (about**2 - self.growing.held**2)))
        self.least = SMALLEST_SHARE * max(gain, 0.0)

    def take(self, candidates: Iterable[CandidateCrossing]) -> None:
        """Take the candidates that pass, the one that explains most first."""
        candidates_allowed = [one for one in candidates if self.among is None or one.name in self.among]
        queue = [(np.inf, -1, candidate, EffectMoments(0.0, 0.0)) for candidate in candidates_allowed]
        looked, every, failed = 0, max(len(queue), 1), 0
        residuals = self.growing.held
        while queue and failed < TRIED and len(self.crossings) < MOST_CROSSINGS:
            at = max(range(len(queue)), key=lambda i: queue[i][0])
            explained, step, candidate, moments = queue.pop(at)
            if explained <= self.least:
                return
            # each crossing taken lowers what is left to explain: only the first of the queue is scored again
            if step < len(self.crossings):
                moments = EffectMoments.of(residuals, self._places(candidate), self.weights)
                usual = [
                    EffectMoments.of(residuals, codes + 1, self.weights).explained for codes in self._usual(candidate)
                ]
                queue.append((max(moments.explained, *usual), len(self.crossings), candidate, moments))
                looked += 1
                self.done(min(looked / every, 1.0))
                continue
            failed = 0 if self._passes(candidate, moments) else failed + 1
            residuals = self.growing.held

    def _places(self, candidate: CandidateCrossing) -> npt.NDArray[np.int64]:
        return joined(candidate.sides, [self._side(side) for side in candidate.sides])

    def _side(self, side: CrossingSide) -> Codes:
        """Return the places of a side, cached: every number is part of many candidates."""
        key = (side.at, side.values is None)
        if key not in self._found:
            self._found[key] = side.places(self.encoded.numbers, self.encoded.codes).astype(np.int32)
        return self._found[key]

    def _usual(self, candidate: CandidateCrossing) -> list[Codes]:
        """Describe rows without labels: how frequent a row's place is, by itself or for each of its sides."""
        places, sides = self._places(candidate), candidate.sides
        return [_usual(places, self._side(side) if len(sides) > 1 else None) for side in sides]

    def _passes(self, candidate: CandidateCrossing, moments: EffectMoments) -> bool:
        crossing = self._grouped(candidate)
        if len(crossing.groups) < FEWEST_GROUPS:
            return False
        codes = crossing.codes(self.encoded.numbers, self.encoded.codes)
        ways = [(codes, crossing.size, moments.shrinkage)]
        for usual in self._usual(candidate):
            ways.append((usual, BINS + 1, EffectMoments.of(self.growing.held, usual + 1, self.weights).shrinkage))
        clear: list[tuple[float, Growing]] = []
        for way in ways:
            growing = self.growing.grown(*way, candidate.beside)
            gains = self.growing.weights * (self.growing.held**2 - growing.held**2)
            if _clear(gains):
                clear.append((float(gains.mean()), growing))
        if not clear or not any(self._beyond_trees(way, size) for way, size, _ in ways):
            return False
        self.growing = max(clear, key=lambda found: found[0])[1]
        self.crossings.append(crossing)
        # a number's values have no bins beside them later: their λ covers both
        self.shrinkage.append(moments.shrinkage if len(crossing.sides) > 1 else None)
        return True

    def _beyond_trees(self, codes: Codes, size: int) -> bool:
        """Check whether effects of codes int32[n] are clearly present in the residuals of trees."""
        if self.left is None:
            return True
        shrinkage = (EffectMoments.of(self._rest, codes + 1, self.weights).shrinkage,)
        effects, _ = out_of_fold(codes[:, None], self._rest, self.draws, [size], known=shrinkage, weights=self.weights)
        return _clear(self.growing.weights * (self._rest**2 - (self._rest - effects[:, 0]) ** 2))

    @cached_property
    def _rest(self) -> FloatArray:
        assert self.left is not None
        return self.left(self.encoded, self.labels, self.draws, self.weights)

    def _grouped(self, candidate: CandidateCrossing) -> Crossing:
        """Restrict to the groups of two rows or more, the largest if there are too many."""
        groups, rows = np.unique(self._places(candidate), return_counts=True)
        frequent = np.flatnonzero(rows >= 2)
        if len(frequent) > MOST_GROUPS:
            frequent = np.sort(frequent[np.argsort(-rows[frequent], kind="stable")[:MOST_GROUPS]])
        return Crossing(candidate.name, candidate.sides, groups[frequent])
