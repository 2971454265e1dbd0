"""Several outputs of one example are one look at its label: exact by hand, and by what they are worth."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from features_party.training import example_groups as module
from features_party.training.class_likelihood import ClassLikelihood
from features_party.training.effects import fit_effects
from features_party.training.example_groups import ExampleGroups, joint_channels
from features_party.training.likelihood import RowLikelihood
from features_party.training.objectives import LossCorrection, RowGradients
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms.rr_with_prior import rr_channel
from tests.support.training import draws, fit, fit_and_judge, quick_validation

pytestmark = pytest.mark.extended

EXAMPLES = np.array([7, 3, 3, 7, 5, 3])  # 3 has three rows, 5 one, 7 two


def several() -> ExampleGroups:
    found = ExampleGroups.of(EXAMPLES)
    assert found is not None
    return found


def test_labels_are_summed_by_the_inverse_of_their_noise() -> None:
    labels, noise = np.array([10.0, 1.0, 2.0, 40.0, 9.0, 4.0]), np.array([1.0, 2.0, 4.0, 2.0, 3.0, 4.0])
    found, left = several().labels(labels, noise)
    assert found == pytest.approx([(1 / 2 + 2 / 4 + 4 / 4) / 1.0, 9.0, (10 / 1 + 40 / 2) / 1.5])
    assert left == pytest.approx([1.0, 3.0, 1 / 1.5])
    assert several().first.tolist() == [1, 4, 0]
    assert ExampleGroups.of(np.array([4, 2, 9])) is None


def test_a_label_without_noise_decides_and_several_of_them_share() -> None:
    found, left = several().labels(np.array([10.0, 1, 2, 40, 9, 4]), np.array([0.0, 0, 0, 2, 0, 4]))
    assert found == pytest.approx([1.5, 9.0, 10.0])
    assert left == pytest.approx([0.0, 0.0, 0.0])
    # infinite: an output that says nothing
    assert several().shares(np.array([1.0, np.inf, np.inf, np.inf, 1, 2])) == pytest.approx([1, 0, 0, 0, 1, 1])


def test_no_other_sum_of_unbiased_labels_has_less_noise() -> None:
    variances = np.array([1.0, 2.0, 4.0, 2.0, 3.0, 4.0])
    _, least = several().labels(np.zeros(6), variances)
    for _ in range(50):
        shares = np.random.default_rng(_).dirichlet(np.ones(6))
        shares = shares / several().sums(shares)[several().which]
        assert np.all(several().sums(shares**2 * variances) >= least - 1e-12)


def test_the_likelihood_of_two_outputs_is_that_of_both() -> None:
    domain = Domain.parse("0:1")
    channels = [rr_channel(domain, Epsilon.parse(e)) for e in ("0.7", "2")]
    message, outputs = np.array([0, 1, 0, 1, 0]), np.array([0, 1, 1, 1, 0])
    examples = np.array([8, 8, 9, 9, 10])
    rows = ExampleGroups.of(examples)
    assert rows is not None
    found = RowLikelihood.through(channels, message, outputs).together(rows)
    assert found is not None
    m = [channel.rows(0, 2) for channel in channels]
    zero, one = found.rows
    by_hand = [m[0][:, 0] * m[1][:, 1], m[0][:, 1] * m[1][:, 1], m[0][:, 0]]
    assert np.column_stack([zero, one]) == pytest.approx(np.array(by_hand))
    # products are channels
    assert all(given.sum(axis=1) == pytest.approx([1.0, 1.0]) for given in found.given)
    # the gradient of −log of the whole likelihood, which is not the sum of those of rows
    score = np.array([0.3, -1.0, 2.0])

    def cost(f: np.ndarray) -> np.ndarray:
        p = 1.0 / (1.0 + np.exp(-f))
        return -np.log(p * np.array(by_hand)[:, 1] + (1.0 - p) * np.array(by_hand)[:, 0])

    numeric = (cost(score + 1e-5) - cost(score - 1e-5)) / 2e-5
    assert found(score, score)[0] * found.information == pytest.approx(numeric, abs=1e-8)


def test_classes_of_two_outputs_and_products_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = Domain.parse("0:3")
    channels = [rr_channel(domain, Epsilon.parse(e)) for e in ("1", "2")]
    message, outputs, rows = np.array([1, 0, 1]), np.array([2, 3, 1]), ExampleGroups.of(np.array([0, 0, 1]))
    assert rows is not None
    told = ClassLikelihood.through(channels, message, outputs, domain)
    found = told.together(rows)
    assert found is not None
    p = np.full((2, 4), 0.25)
    likely = found.seen(p)[1]
    m = [channel.rows(0, 4) for channel in channels]
    assert likely == pytest.approx([float(np.mean(m[0][:, 3] * m[1][:, 2])), float(np.mean(m[1][:, 1]))])
    monkeypatch.setattr(module, "MOST_CELLS", 32)
    assert told.together(rows) is None
    assert joint_channels(told.given, message, outputs, rows) is None


def test_gradients_of_the_absolute_loss_are_averaged_by_their_noise() -> None:
    domain = Domain.parse("0:3")
    channels = [rr_channel(domain, Epsilon.parse(e)) for e in ("1", "3")]
    corrections = tuple(LossCorrection.absolute(channel, None, np.full(4, 0.25), 1.0) for channel in channels)
    message, outputs, rows = np.array([0, 1, 1]), np.array([3, 1, 2]), ExampleGroups.of(np.array([4, 4, 2]))
    assert rows is not None
    each = RowGradients(corrections, message, outputs)
    found, score = each.together(rows), np.array([1.3, 0.4])  # of the examples 2 and 4
    (a, b), (left, right) = [c.noise for c in corrections], each(np.array([0.4, 0.4, 1.3]), np.zeros(3))
    shares = np.array([1 / a, 1 / b]) / (1 / a + 1 / b)
    assert found(score, np.zeros(2))[0] == pytest.approx([left[2], shares @ left[:2]])
    assert found(score, np.zeros(2))[1] == pytest.approx([right[2], shares @ right[:2]])
    assert found.noise == pytest.approx((b + 1 / (1 / a + 1 / b)) / 2)
    assert found.take(np.array([1]))(score[1:], np.zeros(1))[0] == pytest.approx([shares @ left[:2]])


def world(seed: int, n: int) -> tuple[pa.Table, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, shop = rng.normal(size=n), rng.integers(0, 100, n)
    table = pa.table({"x": x, "shop": np.char.add("s", shop.astype(str))})
    return table, 5.0 + 2.0 * x + np.random.default_rng(0).normal(0, 2.0, 100)[shop]


@pytest.mark.parametrize("model", ["linear", "trees", "ensemble"])
def test_two_rows_of_an_example_are_one_and_predicted_for_both(model: str) -> None:
    table, truth = world(3, 900)
    rng, noise = np.random.default_rng(4), np.repeat([16.0, 1.0], 900)
    labels = np.tile(truth, 2) + rng.normal(0, np.sqrt(noise))
    order = rng.permutation(1800)
    twice, groups = pa.concat_tables([table, table]).take(order), np.tile(np.arange(900), 2)[order]
    options = {"model": model, "unbiased": True}
    own = draws(900)
    best, left = (labels[:900] / 16 + labels[900:]) / (1 / 16 + 1), 1 / (1 / 16 + 1)
    with quick_validation():
        found, cross = fit_and_judge(
            twice, labels[order], noise_variance=noise[order], groups=groups, draws=own[groups], **options
        )
        alone = fit(table, best, noise_variance=left, draws=own, **options)
    assert found.predict(table) == pytest.approx(alone.predict(table), rel=1e-6)
    assert "the 1,800 outputs of 900 examples" in " ".join(found.notes)
    assert "outputs of" not in " ".join(alone.notes)
    if cross is not None:
        assert cross.predictions.shape == (1800,)
        of_example = np.empty(900)
        of_example[groups] = cross.predictions
        assert np.array_equal(of_example[groups], cross.predictions)


def test_labels_of_a_weak_message_do_not_drown_the_effects_of_a_clear_one() -> None:
    """Root mean square errors of 200 effects are near their expectation to within a tenth; they differ tenfold."""
    rng, truth = np.random.default_rng(5), np.random.default_rng(6).normal(0, 3.0, 200)
    codes = rng.integers(0, 200, (8000, 1)).astype(np.int32)
    noise = np.repeat([1.0, 1e6], 4000)
    labels = truth[codes[:, 0]] + rng.normal(0, np.sqrt(noise))
    weights = 1.0 / (9.0 + noise)
    errors = []
    for rows, given in ((slice(None), weights / weights.mean()), (slice(None, 4000), None), (slice(None), None)):
        found = fit_effects(codes[rows], labels[rows], [201], weights=given)
        errors.append(float(np.sqrt(np.mean((found.tables[0][1:] - (truth - truth.mean())) ** 2))))
    weighted, clear, drowned = errors
    assert weighted < 1.05 * clear
    assert drowned > 5.0 * clear
