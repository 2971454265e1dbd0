"""Distributions of labels on cells, through channels: derivatives, likelihood, coverage, and controls."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from features_party.training.cells import CellLikelihood, LabelCells
from features_party.training.spread import ScoreCurve, Spread, fit_curve
from label_dp.channels.base import Channel
from tests.support.classes import k_ary
from tests.support.messages import draw, one_bit, rr

FloatArray = npt.NDArray[np.float64]


def labels_around(truth: FloatArray, seed: int) -> FloatArray:
    """Whole labels in 0:10, spread more where the truth is larger."""
    rng = np.random.default_rng(seed)
    return np.clip(np.round(rng.normal(truth, 0.5 + 0.15 * truth)), 0.0, 10.0)


@cache
def drawn(n: int = 6000, epsilon: str = "2") -> tuple[FloatArray, FloatArray, CellLikelihood]:
    """Predictions, true labels, and the likelihood of their outputs."""
    truth = np.random.default_rng(1).uniform(1.0, 9.0, n)
    labels = labels_around(truth, 2)
    channel = k_ary(11, epsilon)
    return truth, labels, likelihood(channel, draw(channel, labels))


def likelihood(channel: Channel, outputs: npt.NDArray[np.int64]) -> CellLikelihood:
    found = CellLikelihood.through([channel], np.zeros(len(outputs), np.int8), outputs)
    assert found is not None
    return found


def test_gradients_are_those_of_the_likelihood_of_the_outputs() -> None:
    told = drawn()[2].take(slice(0, 200))
    score = np.random.default_rng(3).normal(0.0, 1.0, (200, 2))
    gradient, _ = told(score)
    for at in range(2):
        step = np.zeros(2)
        step[at] = 1e-5
        likely = [np.log(told.told.seen(told.cells.probabilities(score + s))[1]) for s in (step, -step)]
        assert gradient[:, at] == pytest.approx((likely[1] - likely[0]) / 2e-5, abs=1e-7)


def test_the_hessian_is_the_expected_square_of_the_gradient() -> None:
    """By enumeration of the outputs; at the start it is a share of what a true label says, which is 1."""
    channel = k_ary(11, "2")
    told = likelihood(channel, np.repeat(np.arange(11), 20))
    score = np.random.default_rng(4).normal(0.0, 0.5, (20, 2))
    gradient, hessian = told(np.tile(score, (11, 1)))
    shares = told.cells.probabilities(score) @ told.told.given[0]
    expected = sum(shares[:, [o]] * gradient[20 * o : 20 * o + 20] ** 2 for o in range(11))
    assert hessian[:20] == pytest.approx(expected, rel=1e-9)
    at_start = told(np.zeros((1, 2)) * np.ones((220, 1)))[1][0]
    assert np.all(at_start <= told.directions[0] * (1.0 + 1e-9))


def test_scores_move_and_narrow_the_distribution() -> None:
    cells = drawn()[2].cells
    assert cells.probabilities(np.zeros((1, 2)))[0] == pytest.approx(cells.mass)
    moved = cells.probabilities(np.array([[-1.0, 0.0], [1.0, 0.0]])) @ cells.means
    assert moved[0] < cells.mass @ cells.means < moved[1]
    narrow, wide = cells.probabilities(np.array([[0.0, -2.0], [0.0, 2.0]]))
    middle = len(narrow) // 2
    assert narrow[middle] > wide[middle]


def test_no_step_of_a_curve_makes_the_outputs_less_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    truth, _, told = drawn()
    costs = []
    for steps in range(6):
        monkeypatch.setattr("features_party.training.spread.STEPS", steps)
        costs.append(told.looked(fit_curve(told, truth)(truth))[1])
    assert all(later <= before + 1.0 for before, later in itertools.pairwise(costs))  # its penalty is so large
    assert costs[-1] < costs[0] - 100.0


def calibrated(found: FloatArray, labels: FloatArray, shares: FloatArray) -> bool:
    """Whether so many labels are at or below each quantile, and no more than that below it."""
    below = (labels[:, None] < found).mean(axis=0)
    reached = (labels[:, None] <= found).mean(axis=0)
    return bool(np.all(below - 0.03 < shares) and np.all(shares < reached + 0.03))


def test_quantiles_hold_for_true_labels_and_those_of_outputs_do_not() -> None:
    """For labels that nobody trained on, over all of them. The error of a share of 20,000 labels is below 0.004, that
    of a curve of 6,000 rows about 0.01: 0.03 is beyond 2.7 standard errors, a wrong alarm in 150 for each of the six
    shares and fewer together, since they move with each other; the draws are the same every time. Control: outputs
    taken for true labels give far wider intervals, which the same check refuses."""
    truth, _, told = drawn()
    later = np.random.default_rng(8).uniform(1.0, 9.0, 20_000)
    labels = labels_around(later, 9)
    shares = np.array([0.05, 0.1, 0.25, 0.75, 0.9, 0.95])
    found = Spread.around(truth, told).quantiles(later, shares)
    assert calibrated(found, labels, shares)
    for level, (low, high) in ((0.9, (0, -1)), (0.8, (1, -2)), (0.5, (2, -3))):
        assert float(np.mean((found[:, low] <= labels) & (labels <= found[:, high]))) > level - 0.02
    exact = k_ary(11, "30")  # what is seen is taken for the label
    wrong = Spread.around(truth, likelihood(exact, np.asarray(told.told.outputs)))
    assert not calibrated(wrong.quantiles(later, shares), labels, shares)


def test_quantiles_rise_and_lie_among_the_labels() -> None:
    truth, _, told = drawn()
    found = Spread.around(truth, told).quantiles(truth[:300], np.array([0.01, 0.25, 0.5, 0.75, 0.99]))
    assert np.all(np.diff(found, axis=1) >= 0.0)
    assert set(found.ravel().tolist()) <= set(range(11))


def test_one_bit_says_nothing_beyond_the_mean() -> None:
    labels = drawn()[1]
    channel = one_bit()
    outputs = draw(channel, labels)
    assert CellLikelihood.through([channel], np.zeros(len(labels), np.int8), outputs) is None
    three = rr()
    assert CellLikelihood.through([three], np.zeros(len(labels), np.int8), draw(three, labels)) is not None
    mixed = [channel, one_bit("0:9")]
    assert CellLikelihood.through(mixed, np.zeros(len(labels), np.int8), outputs) is None


def test_several_messages_count_by_their_channels() -> None:
    truth, labels, _ = drawn()
    channels = [one_bit(), k_ary(11, "2")]
    message = np.arange(len(labels)) % 2
    outputs = np.where(message == 0, draw(channels[0], labels), draw(channels[1], labels))
    told = CellLikelihood.through(channels, message, outputs)
    assert told is not None
    alone = drawn()[2]
    assert told.directions[1] == pytest.approx(alone.directions[1] / 2.0, rel=0.2)
    assert told.looked(fit_curve(told, truth)(truth))[1] < told.looked(np.zeros((len(truth), 2)))[1] - 50.0


def test_a_spread_is_written_and_read_and_refuses_edits() -> None:
    truth, _, told = drawn()
    spread = Spread.around(truth, told)
    document = spread.as_json()
    again, ends = Spread.from_json(document), np.array([0.1, 0.9])
    np.testing.assert_array_equal(again.quantiles(truth, ends), spread.quantiles(truth, ends))
    cells, curve = document["cells"], document["curve"]
    for wrong in (
        cells | {"values": cells["values"][::-1]},
        cells | {"shares": [0.5] * 11},
        cells | {"cell": [0] * 11},
        cells | {"cell": [1, *cells["cell"][1:]]},
    ):
        with pytest.raises(ValueError, match=r"cells|shares"):
            LabelCells.from_json(wrong)
    with pytest.raises(ValueError, match="knots"):
        ScoreCurve.from_json(curve | {"knots": [0.0] * len(curve["knots"])})
