"""Every bound of an error that a document, card, guide or README states, and the test that measures it at its worst
(invariant bounds-hold).

`STATED` is the list: where the sentence stands, some of its words, and the test. What is measured here: calibrations
where scores tie, where few of the sent ones belong to the batch and where values are few; ranks where all wrong points
miss by just too much; sides of rectangles. Probabilities of choices are summed exactly; means of draws are compared
with their bound at four standard errors (a right bound fails less than once in 10⁴), counts at the binomial's 10⁻⁶.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import isotonic_regression
from scipy.stats import binom

from label_dp.companions.costs.slices import Cost
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.antichains import poset_grid
from labels_party.companions.mechanisms.isotonic.binned import BinnedMeans, BinnedMedians
from labels_party.companions.mechanisms.isotonic.binning import default_bins
from labels_party.companions.mechanisms.isotonic.cells import Cells
from labels_party.companions.mechanisms.isotonic.surfaces import SurfacePlan, axis_cells
from labels_party.companions.mechanisms.private_median.rectangles import RectanglePlan, private_rectangle
from labels_party.mechanisms.quantiles import EACH, parse_quantile, plan_quantiles, rank_losses
from labels_party.message.clipping import candidates
from tests.support.isotonic_bounds import binned_excess_bound, poset_excess_bound

ROOT = Path(__file__).resolve().parents[2]
FORMAT, MECHANISMS = "shared/label_dp/documents/FORMAT.md", "labels_party/mechanisms/README.md"
AROUND = "labels_party/companions/mechanisms/README.md"
ISOTONIC, TRAINING = "labels_party/companions/mechanisms/isotonic/README.md", "features_party/training/README.md"
STATEMENT, WHICH = "shared/label_dp/documents/statement.html.jinja", "deploy/guides/which-release.md"
HERE, MEDIANS = "statistical/test_stated_bounds.py", "unit/labels_party/companions/mechanisms/private_median"

STATED = [
    # ε itself
    (MECHANISMS, "proved to be at most e^ε in whole numbers", "privacy_audit/test_exact_matrix.py", None),
    (STATEMENT, "times</strong> surer of any one label", "unit/shared/documents/test_statement_words.py", None),
    (WHICH, "is right in at most", "unit/shared/documents/test_statement_words.py", None),
    (FORMAT, "what an example of the population has spent at most", "unit/shared/documents/test_unit_bound.py", None),
    (MECHANISMS, "N·e^((N−1)·ε)·δ", "integration/test_lifetime_delta.py", "test_per_unit_figures_of_both"),
    (
        AROUND,
        "the least of its bounds is charged",
        f"{MEDIANS}/test_slice_accounting.py",
        "test_noisy_slices_keep_their_bound_over_all_transcripts",
    ),
    (FORMAT, "how far one label moves a prediction", "privacy_audit/test_prediction_epsilon.py", None),
    # errors of randomizers
    (FORMAT, "the largest bias at a knot", "unit/labels_party/mechanisms/test_unbiased.py", "test_means_are_exact"),
    (
        MECHANISMS,
        "by candidate outputs with a reported gap beyond",
        "unit/labels_party/mechanisms/test_bins.py",
        "test_a_domain_beyond_the_exact_path_reports_an_honest_gap",
    ),
    (MECHANISMS, "the least expected loss of all ε-DP", "unit/labels_party/mechanisms/test_bins_oracle.py", None),
    (
        MECHANISMS,
        "less than 2 % above the least",
        "unit/labels_party/mechanisms/test_unbiased.py",
        "test_its_loss_is_less",
    ),
    # answers
    (ISOTONIC, "loses at\nmost 2(R/ε)²·Σ 1/m_c", HERE, "test_bins_lose_no_more"),
    (ISOTONIC, "`grid` loses at most", HERE, "test_a_grid_loses_no_more"),
    (ISOTONIC, "beside both bounds", "statistical/test_isotonic_draws.py", "test_the_excess_loss_keeps_to_its_bound"),
    (FORMAT, "the median drawn for any cell misses", HERE, "test_medians_of_cells_miss"),
    (FORMAT, "`ranks`: the error of the rank", HERE, "test_ranks_miss_by_no_more"),
    (MECHANISMS, "2·ln(20·m)/ε_clip labels, 19 times in 20", HERE, "test_ranks_miss_by_no_more"),
    (FORMAT, "a third of the labels", "statistical/test_slice_draws.py", "test_medians_lie_between_the_thirds"),
    (FORMAT, "where each side lies within its slice", HERE, "test_sides_of_rectangles"),
    (AROUND, "no side is missed 19 times in 20", HERE, "test_sides_of_rectangles"),
    # cards
    (
        TRAINING,
        "95 % intervals",
        "simulation/test_final_error_coverage.py",
        "test_intervals_hold_the_final_models_error",
    ),
    (TRAINING, "Intervals are normal, 95 %", "simulation/test_probability_coverage.py", "test_intervals_cover"),
    (TRAINING, "Intervals are normal, 95 %", "simulation/test_class_coverage.py", "test_intervals_cover"),
    (TRAINING, "bias b under the prior", "simulation/test_holdout_coverage.py", "test_intervals_cover_the_true_error"),
]

HUNDRED, ONE = Domain.parse("0:100"), Epsilon.parse("1")
SIZE, N = 1 << 20, 10_000
Ints = npt.NDArray[np.int64]


@cache
def _tests(path: str) -> tuple[str, ...]:
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    return tuple(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(("where", "words", "path", "test"), STATED)
def test_every_stated_bound_stands_there_and_is_measured(where: str, words: str, path: str, test: str | None) -> None:
    assert words in (ROOT / where).read_text(encoding="utf-8")
    assert any(name.startswith(test or "test_") for name in _tests(path))


# --- calibrations -------------------------------------------------------------------------------------------


def excess(plan: BinnedMeans, x: Ints, y: Ints, fits: int) -> npt.NDArray[np.float64]:
    """By how much each fit loses more than the best monotone map of its cells, over all examples."""
    counts = plan.sums(x, y)[1]
    on = counts > 0
    means = np.bincount(plan.cells[0].of(x), weights=plan.domain.values[y], minlength=plan.count)[on] / counts[on]
    best, first = isotonic_regression(means, weights=counts[on].astype(float)).x, plan.cells[0].edges[:-1][on]

    def lost(values: npt.NDArray[np.float64]) -> float:
        return float(np.sum(counts[on] * ((values - means) ** 2 - (best - means) ** 2)))

    return np.array([lost(plan.fit(x, y).apply(first)) for _ in range(fits)])


def scores(case: str) -> tuple[Ints, Ints]:
    """Scores that were sent, and those of them that belong to the batch."""
    rng = np.random.default_rng(5)
    sent = np.where(rng.random(N) < 0.9, 0, rng.integers(1, SIZE, N)) if case == "tied" else rng.permutation(N) * 100
    return sent, sent[: N // 10] if case == "a tenth" else sent


@pytest.mark.parametrize(("case", "old"), [("even", 11_250), ("tied", 162), ("a tenth", 11_250)])
def test_bins_lose_no_more_than_their_noise_allows(case: str, old: float) -> None:
    """`old`: with cells taken for equal, and all scores for met, which is too small in two of the cases."""
    sent, met = scores(case)
    plan = BinnedMeans(HUNDRED, (axis_cells(sent, SIZE, default_bins(N, ONE)),), N, ONE)
    y = np.minimum(100, plan.cells[0].of(met) * 100 // plan.count)  # rises from cell to cell: nothing averages out
    lost = excess(plan, met, y, 200)
    error = float(lost.std()) / np.sqrt(200)
    bound = binned_excess_bound(plan, plan.sums(met, y)[1])
    assert np.mean(lost) - 4 * error < bound
    assert 2 * (plan.count * 100) ** 2 / N == pytest.approx(old)
    if case != "even":
        assert np.mean(lost) - 4 * error > old


def test_bins_lose_no_more_where_rounding_or_empty_cells_decide() -> None:
    million, large = np.arange(1_000_000), Epsilon.parse("1000")
    plan = BinnedMeans(Domain.parse("0:6"), (Cells.even(1_000_000, 3),), 1_000_000, large)
    y = np.full(1_000_000, 1)  # no whole 1/65,536 of the range
    bound = binned_excess_bound(plan, plan.sums(million, y)[1])
    assert 0 < np.mean(excess(plan, million, y, 3)) < bound < 1e-2
    few = BinnedMeans(HUNDRED, (Cells.even(40, 40),), 2, large)  # 38 of the middle between two that fall
    x, y = np.array([0, 39]), np.array([0, 0])
    assert np.mean(excess(few, x, y, 20)) < binned_excess_bound(few, few.sums(x, y)[1])
    assert np.mean(excess(few, x, y, 20)) > 1000  # a control: without a term for empty cells it is about 0


def test_a_grid_loses_no_more_than_its_choices_and_its_spacing_allow() -> None:
    rng, n, epsilon = np.random.default_rng(6), 200_000, Epsilon.parse("4")
    plan = SurfacePlan(HUNDRED, (Cells.even(2, 2), Cells.even(2, 2)), n, epsilon, "squared", 2)
    x = rng.integers(0, 2, (2, n))
    y = rng.integers(45, 50, n)
    grid = poset_grid(HUNDRED, plan.poset, n, epsilon, "squared", 2)
    choices = poset_excess_bound(grid, plan.poset, epsilon)
    best = float(np.sum((y - y.mean()) ** 2))
    lost = np.mean([float(np.sum((plan.fit(x, y).apply(x[0], x[1]) - y) ** 2)) - best for _ in range(5)])
    spacing = n * float(np.diff(grid.outputs).max()) ** 2 / 4
    assert 100 * choices < lost < choices + spacing  # a control: without the spacing it is not a hundredth


# --- ranks --------------------------------------------------------------------------------------------------


def chance_beyond(below: Ints, upto: Ints, n: int, rate: float, reach: float, quantile: str = "0.5") -> float:
    """P[a draw among candidates misses the quantile by more than `reach` labels], summed exactly."""
    share = parse_quantile(quantile)
    losses = rank_losses(below, upto, share, n).astype(float) / share.denominator
    weights = np.exp(-rate * (losses - losses.min()))
    return float(weights[losses - losses.min() > reach].sum() / weights.sum())


@pytest.mark.parametrize(("quantile", "epsilon", "k"), [("0.5", "0.1", 401), ("0.95", "1", 5000), ("0.5", "0.2", 3)])
def test_ranks_miss_by_no_more_than_stated_19_times_in_20(quantile: str, epsilon: str, k: int) -> None:
    """Where one candidate is right and all others miss by the next rank; of a bought bound and of a median alike."""
    n = 100_000
    plan = plan_quantiles([quantile], Epsilon.parse(epsilon), n, k, method=EACH)
    counts = np.zeros(k, np.int64)
    counts[0] = n * float(quantile) + np.floor(plan.rank_error) + 1
    counts[-1] = n - counts[0]
    assert counts[-1] > 0
    upto = np.cumsum(counts)
    wrong = chance_beyond(upto - counts, upto, n, float(plan.rate), plan.rank_error, quantile)
    assert 0.01 < wrong < 1 / 20
    assert chance_beyond(upto - counts, upto, n, float(plan.rate) / 2, plan.rank_error, quantile) > 1 / 20  # a control


def test_bought_bounds_have_some_hundred_candidates() -> None:
    assert candidates(Domain.parse("0:10000000")).size < 1000


@pytest.mark.parametrize("domain", ["0:100", "0:5000"])
def test_medians_of_cells_miss_by_no_more_than_stated_19_times_in_20(domain: str) -> None:
    """All 20 cells have one right value, and the others miss by the next rank."""
    plan = BinnedMedians(Domain.parse(domain), (Cells.even(20, 20),), 20_000, ONE)
    m, first, last = 1000, 0, plan.domain.k - 1
    beyond = int(np.floor(plan.rank_error)) + 1
    y = np.tile(np.repeat([first, last], [m // 2 + beyond, m // 2 - beyond]), 20)
    below, upto, counts = plan.ranks(np.repeat(np.arange(20), m), y)
    missed = 1.0
    for low, high in zip(below, upto, strict=True):
        missed *= 1 - chance_beyond(low, high, m, float(plan.rate), plan.rank_error)
    assert counts.tolist() == [m] * 20
    assert 0.01 < 1 - missed < 1 / 20


# --- rectangles ---------------------------------------------------------------------------------------------


def test_sides_of_rectangles_lie_within_their_slices_19_times_in_20() -> None:
    """Of coordinates as close as can be in a wide range; of slices that are too small, more may end outside."""
    plan = RectanglePlan.within(Cost(ONE.fraction), n=1000, axes=1, bits=20, base=1 << 20)
    points = (np.arange(1000) + (1 << 19)).reshape(-1, 1)
    positive, runs = np.ones(1000, np.bool_), 200
    outside = []
    for _ in range(runs):
        found = private_rectangle(points, positive, plan)
        outside.append(int(np.sum(~found.contains(points))))
    missed = int(np.sum(np.array(outside) > plan.taken))
    assert missed <= binom.isf(1e-6, runs, 1 / 20)
    few = RectanglePlan.within(Cost(ONE.fraction), n=1000, axes=1, bits=20, slice=5, base=1 << 20)
    lost = [int(np.sum(~private_rectangle(points, positive, few).contains(points))) for _ in range(20)]
    assert max(lost) > few.taken  # a control: slices that are too small miss their sides
