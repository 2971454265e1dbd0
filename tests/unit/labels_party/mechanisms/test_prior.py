"""The private prior: its share of ε, its public cells, the simplex."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from label_dp.errors import InvalidEpsilon, InvalidPrior
from label_dp.privacy import Epsilon
from labels_party.mechanisms import prior as prior_module
from labels_party.mechanisms.entropy import LaplaceNoise, float_not_below
from labels_party.mechanisms.prior import (
    check_prior,
    estimate_prior,
    onto_simplex,
    prior_epsilon,
    public_cells,
)

E = Epsilon.parse


def test_auto_takes_a_fortieth_or_what_is_enough() -> None:
    middle = prior_epsilon("auto", k=401, n=28_000, epsilon=E("0.5"))
    assert (middle.epsilon, middle.cells.size - 1) == (E("0.0125"), 32)
    large = prior_epsilon("auto", k=401, n=1_000_003, epsilon=E("0.5"))
    exact = Fraction(8, 5) ** 3 * Fraction(32, 1_000_003) ** 2  # the cube of 1.6·(g/n)^⅔
    assert large.epsilon.fraction**3 <= exact < Epsilon(large.epsilon.nano + 2).fraction ** 3


def test_auto_takes_more_of_an_epsilon_that_teaches_little_but_the_mean() -> None:
    found = [prior_epsilon("auto", k=401, n=n, epsilon=E("0.1")) for n in (8_000, 2_000, 1_000, 450, 1)]
    assert [plan.epsilon for plan in found] == [E("0.016"), E("0.033333333"), E("0.033333333"), E("0"), E("0")]
    # what is left is enough to measure a mean that no released label could show
    plan, counts = found[0], np.bincount(np.full(8_000, 40), minlength=401)
    means = [float(estimate_prior(counts, plan.epsilon, plan.cells) @ np.arange(401)) for _ in range(20)]
    assert np.mean(np.abs(np.array(means) - 40)) < 60 < abs(200 - 40)


def test_theorem_7_is_the_root_rounded_down_on_all_labels() -> None:
    plan = prior_epsilon("theorem7", k=401, n=17_000, epsilon=E("0.5"))
    assert plan.epsilon.fraction**2 <= Fraction(401, 17_000) < Epsilon(plan.epsilon.nano + 1).fraction ** 2
    assert np.array_equal(plan.cells, np.arange(402))
    assert prior_epsilon("theorem7", k=401, n=100, epsilon=E("0.5")).epsilon == E("0.25")


def test_labels_that_begin_at_zero_have_a_larger_share_and_cells_that_grow() -> None:
    even, growing = (prior_epsilon("auto", k=401, n=1_000_000, epsilon=E("1"), from_zero=z) for z in (False, True))
    assert growing.epsilon.fraction == pytest.approx(10 * even.epsilon.fraction, rel=1e-6)
    assert growing.epsilon.fraction < Fraction(1, 40)
    assert np.array_equal(growing.cells[:3], [0, 1, 2])
    small = prior_epsilon("auto", k=401, n=28_000, epsilon=E("0.5"), from_zero=True)
    assert small.epsilon == E("0.0125")


def test_an_explicit_amount_must_leave_something() -> None:
    assert prior_epsilon(E("0.1"), k=10, n=10, epsilon=E("0.5")).epsilon == E("0.1")
    for rule in (E("0.5"), E("0.6"), "half"):
        with pytest.raises(InvalidEpsilon):
            prior_epsilon(rule, k=10, n=10, epsilon=E("0.5"))


def test_an_epsilon_too_small_to_split_gives_the_uniform_prior() -> None:
    plan = prior_epsilon("auto", k=5, n=100, epsilon=Epsilon(1))
    assert plan.epsilon == Epsilon(0)
    assert np.array_equal(estimate_prior(np.array([9, 1, 0, 0, 0]), plan.epsilon, plan.cells), np.full(5, 0.2))


@pytest.mark.parametrize("k", [1, 2, 31, 53, 401, 1 << 20])
@pytest.mark.parametrize("epsilon", ["0.05", "1", "2.5", "4", "8"])
def test_public_cells_partition_the_domain_evenly(k: int, epsilon: str) -> None:
    cells = public_cells(k, E(epsilon), 1_000_000)
    widths = np.diff(cells)
    assert (cells[0], cells[-1]) == (0, k)
    assert widths.min() >= 1
    assert np.ptp(widths[1:-1] if widths.size > 3 else widths) <= 1
    assert cells.size - 1 == min(k, {"0.05": 32, "1": 32, "2.5": 48, "4": 64, "8": 128}[epsilon])


def test_small_batches_get_fewer_cells() -> None:
    assert public_cells(401, E("0.5"), 1000).size - 1 == 8
    assert public_cells(401, E("0.5"), 8000).size - 1 == 10
    assert public_cells(401, E("0.5"), 8000, True).size - 1 == 16
    assert public_cells(401, E("2"), 8000, True).size - 1 == 8
    assert public_cells(401, E("0.05"), 9000, True).size - 1 == 10
    assert public_cells(401, E("0.05"), 7000, True).size - 1 == 8
    assert public_cells(401, E("0.5"), 300_000, True).size - 1 == 18
    assert public_cells(401, E("4"), 16_000, True).size - 1 == 32


def test_projection_is_the_nearest_point_of_the_simplex() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        v = rng.normal(0.2, 1.0, size=int(rng.integers(1, 12)))
        x = onto_simplex(v)
        assert x.sum() == pytest.approx(1.0, abs=1e-12)
        assert np.all(x >= 0)
        others = rng.dirichlet(np.ones(v.size), size=200)
        assert np.sum((x - v) ** 2) <= np.min(np.sum((others - v) ** 2, axis=1)) + 1e-12
    assert np.array_equal(onto_simplex(np.array([1e18, 0.0])), [1.0, 0.0])


@pytest.mark.parametrize("method", ["project", "clip"])
def test_estimate_is_close_at_a_large_epsilon_and_even_within_cells(method: str) -> None:
    counts = np.arange(10) * 1000
    cells = np.array([0, 2, 5, 10])
    p = estimate_prior(counts, E("50"), cells, method)  # type: ignore[arg-type]  # parametrized text
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert p == pytest.approx(np.repeat([1 / 90, 9 / 135, 35 / 225], [2, 3, 5]), abs=1e-3)
    assert np.ptp(p[5:]) == 0.0


def test_noise_scale_is_two_over_epsilon_and_nothing_left_is_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def drowned(noise: LaplaceNoise, n: int) -> np.ndarray:
        seen.append((noise, n))
        return np.full(n, -(10**9), dtype=np.int64)

    monkeypatch.setattr(prior_module, "discrete_laplace", drowned)
    clipped = estimate_prior(np.array([5, 5, 0, 0]), E("0.3"), np.array([0, 1, 4]), "clip")
    assert np.array_equal(clipped, np.full(4, 0.25))
    assert seen == [(LaplaceNoise(2, Fraction(3, 10)), 2)]
    assert seen[0][0].scale == Fraction(float_not_below(Fraction(20, 3)))


def test_an_empty_batch_has_the_uniform_prior() -> None:
    assert np.array_equal(estimate_prior(np.zeros(4, np.int64), E("1"), np.arange(5)), np.full(4, 0.25))


def test_malformed_cells_and_methods_are_refused() -> None:
    counts = np.ones(4, dtype=np.int64)
    for cells in ([0, 3], [1, 4], [0, 2, 2, 4], [0]):
        with pytest.raises(InvalidPrior):
            estimate_prior(counts, E("1"), np.array(cells))
    with pytest.raises(InvalidPrior):
        estimate_prior(counts, E("1"), np.arange(5), "round")  # type: ignore[arg-type]  # wrong on purpose


def test_check_prior_renormalises_or_refuses() -> None:
    assert check_prior([0.5000001, 0.5], 2).sum() == pytest.approx(1.0, abs=1e-15)
    for bad in ([1.0], [0.5, 0.4], [1.5, -0.5], [np.nan, 1.0], [np.inf, 0.0], ["a", "b"], [[0.5], [0.5]]):
        with pytest.raises(InvalidPrior):
            check_prior(bad, 2)


@pytest.mark.parametrize("method", ["project", "clip"])
def test_a_prior_is_a_function_of_the_noisy_counts_at_any_noise(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours with the same noisy counts: a count added as a float to noise beyond 2⁵³ would tell them apart."""

    def of(counts: list[int], noisy: int) -> bytes:
        own = np.array(counts)
        monkeypatch.setattr(prior_module, "discrete_laplace", lambda _noise, n: np.array([noisy, 7, 1 << 61]) - own)
        return estimate_prior(own, E("0.3"), np.arange(4), method).tobytes()  # type: ignore[arg-type]  # parametrized

    for noisy in (5, (1 << 53) + 1, (1 << 60) + 129, -(1 << 60) - 129):
        assert of([5, 3, 2], noisy) == of([4, 4, 2], noisy)
