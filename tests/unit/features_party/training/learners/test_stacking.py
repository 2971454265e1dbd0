"""How many trees: the rule's number, unless another is clearly better; and trees as the mean of three boosters."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from features_party.training.encoding import FeatureSchema
from features_party.training.learner import ModelInput
from features_party.training.learners.crossfit import BAGS
from features_party.training.learners.ensemble import Ensemble
from features_party.training.learners.stacking import best_rounds, stacked
from features_party.training.learners.trees import Trees
from tests.support.training import fit_and_judge

pytestmark = pytest.mark.extended

FloatArray = npt.NDArray[np.float64]
ROWS = 10_000
NOTHING, ONES = np.zeros(ROWS), np.ones(ROWS)
SWINGS = np.tile([1.0, -1.0], ROWS // 2)  # a standard error of 1/100


def behind(gain: float) -> FloatArray:
    """Predictions of labels 0 whose squared error is 4 less a gain of this mean and of standard error 1/100."""
    return np.asarray(np.sqrt(4.0 - gain - SWINGS))


USUAL = np.full(ROWS, 2.0)


@pytest.mark.parametrize("other", [25, 50, 150])
@pytest.mark.parametrize(("gain", "clear"), [(0.009, False), (0.011, True), (-0.011, False), (0.0, False)])
def test_the_rules_number_stays_unless_the_gain_exceeds_its_error(other: int, gain: float, clear: bool) -> None:
    out = {("trees", 100): USUAL, ("trees", other): behind(gain)}
    assert best_rounds(out, NOTHING, NOTHING, ONES, 100) == {"trees": other if clear else 100}
    assert best_rounds(dict(reversed(out.items())), NOTHING, NOTHING, ONES, 100) == {"trees": other if clear else 100}


def test_the_least_of_the_clear_errors_is_taken_and_no_unclear_one() -> None:
    rare = np.where(np.arange(ROWS) % 1000 == 0, -200.0, 200 / 999)
    wild = np.sqrt(4.0 - 0.05 - rare)  # a gain of 0.05, and a standard error of 0.06
    assert best_rounds({("trees", 100): USUAL, ("trees", 25): wild}, NOTHING, NOTHING, ONES, 100) == {"trees": 100}
    out = {("trees", 100): USUAL, ("trees", 25): wild, ("trees", 50): behind(0.02)}
    assert best_rounds(out, NOTHING, NOTHING, ONES, 100) == {"trees": 50}
    out = {
        ("trees", 25): behind(0.02),
        ("trees", 50): behind(0.04),
        ("trees", 100): USUAL,
        ("trees", 150): behind(0.03),
    }
    assert best_rounds(out, NOTHING, NOTHING, ONES, 100) == {"trees": 50}
    tie = {("trees", 150): behind(0.04), ("trees", 100): USUAL, ("trees", 50): behind(0.04)}
    assert best_rounds(tie, NOTHING, NOTHING, ONES, 100) == {"trees": 50}  # fewer trees for the same


def test_members_have_numbers_of_their_own_and_those_without_trees_have_0() -> None:
    out = {("main effects", 0): USUAL, ("trees on top", 100): USUAL, ("trees on top", 50): behind(0.5)}
    out |= {("trees", 100): USUAL, ("trees", 50): behind(-0.5)}
    found = best_rounds(out, NOTHING, NOTHING, ONES, 100)
    assert found == {"main effects": 0, "trees on top": 50, "trees": 100}
    # no rule of fewer than one tree
    assert best_rounds({("trees", 1): USUAL}, NOTHING, NOTHING, ONES, 0) == {"trees": 1}


def test_rows_count_by_weight_and_missing_predictions_as_the_constant() -> None:
    better, worse = np.where(np.arange(ROWS) < 100, 1.0, 2.1), USUAL
    out = {("trees", 100): worse, ("trees", 50): better}
    assert best_rounds(out, NOTHING, NOTHING, ONES, 100) == {"trees": 100}
    heavy = np.where(np.arange(ROWS) < 100, 99.0, 0.01)
    assert best_rounds(out, NOTHING, NOTHING, heavy, 100) == {"trees": 50}
    gone = np.full(ROWS, np.nan)
    out = {("trees", 100): USUAL, ("trees", 50): gone}
    assert best_rounds(out, NOTHING, NOTHING, ONES, 100) == {"trees": 50}  # the constant 0 is right here
    assert best_rounds(out, NOTHING + 3.0, NOTHING, ONES, 100) == {"trees": 100}


# --- the weights -------------------------------------------------------------------------------------------


def test_a_member_that_hardly_moves_leaves_the_others_their_weight() -> None:
    """Least squares wants 25 times the faint member; divided by the sum, the other would have a weight of 1/26."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, ROWS))
    labels = first + 0.5 * second + rng.normal(size=ROWS)
    table = np.stack([first, 0.02 * second], axis=1)
    found = stacked(table, NOTHING, labels, ONES)
    assert found.sum() == pytest.approx(1.0, abs=1e-6)
    assert found[0] > 0.95
    # it is the best of that sum: a little more or less of either errs more
    error = [
        float(np.mean((labels - table @ (found + step * np.array([1.0, -1.0]))) ** 2)) for step in (-0.01, 0, 0.01)
    ]
    assert error[1] <= min(error) + 1e-9 or found.min() == 0.0


@pytest.mark.parametrize("wanted", [0.3, 0.7])
def test_weights_of_a_sum_below_1_are_least_squares_shrunk_by_chance(wanted: float) -> None:
    rng = np.random.default_rng(1)
    first = rng.normal(size=ROWS)
    labels = wanted * first + rng.normal(size=ROWS)
    plain = float(first @ labels / (first @ first))
    residual = float(np.mean((labels - plain * first) ** 2))
    shrunk = plain * (1.0 - 2.0 * residual / (plain * plain * float(first @ first)))
    assert stacked(first[:, None], NOTHING, labels, ONES) == pytest.approx([shrunk], rel=1e-6)


# --- the three boosters ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stripes() -> tuple[Ensemble, FeatureSchema, pa.Table]:
    """48 stripes of a number: more than the 24 levels of other members, so that trees have all the weight."""
    rng = np.random.default_rng(0)
    x = rng.random(1000)
    table = pa.table({"x": x, "z": rng.random(1000)})
    model, _ = fit_and_judge(table, np.floor(48 * x) % 2 * 4.0 + 3.0, unbiased=True)
    assert isinstance(model.body, Ensemble)
    return model.body, model.schema, table


def test_trees_are_three_boosters_of_equal_weight_that_differ(
    stripes: tuple[Ensemble, FeatureSchema, pa.Table],
) -> None:
    body, schema, table = stripes
    members = [member for member in body.parts if member.name == "trees"]
    assert members == list(body.parts)  # so the prediction is theirs alone
    assert len(members) == BAGS == 3
    weight = sum(member.weight for member in members)
    assert 0.5 < weight <= 1.0 + 1e-12
    assert {member.weight for member in members} == {weight / 3}
    encoded = schema.encode(table)
    seen = ModelInput(encoded, np.empty((1000, 0), np.float32), [])
    parts = []
    for member in members:
        assert isinstance(member.body, Trees)
        parts.append(np.clip(member.body.predict(seen), *body.bounds))
    assert len({member.body.count for member in members if isinstance(member.body, Trees)}) == 1
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert np.mean(parts[one] != parts[other]) > 0.9
    expected = body.mean + weight * (np.mean(parts, axis=0) - body.mean)
    assert body.predict(seen) == pytest.approx(expected, rel=1e-12)
