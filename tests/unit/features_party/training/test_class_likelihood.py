"""The log loss of classes through channels: derivatives against differences and enumeration, shares, capacity."""

from __future__ import annotations

import numpy as np
import pytest

from features_party.training import class_likelihood
from features_party.training.class_likelihood import ClassLikelihood
from features_party.training.classes import are_classes, class_names
from features_party.training.likelihood import RowLikelihood
from features_party.training.softmax import Softmax, softmax
from features_party.training.straightening import straightened
from label_dp.channels.base import Channel
from label_dp.domain import Domain
from label_dp.errors import InvalidLoss
from tests.support.classes import ClassWorld, by_subsets, k_ary, kept
from tests.support.messages import draw

FOUR = Domain.parse("0:3")
UNEVEN = np.array([0.4, 0.3, 0.2, 0.1])


def two_messages(n: int = 300) -> ClassLikelihood:
    """One keeps every class, the other some of them."""
    rng, channels = np.random.default_rng(3), [k_ary(4, "0.7"), kept(UNEVEN, "1")]
    assert channels[1].m < 4
    message = rng.integers(0, 2, n)
    outputs = np.where(message == 0, rng.integers(0, 4, n), rng.integers(0, channels[1].m, n))
    return ClassLikelihood.through(channels, message, outputs, FOUR)


def test_gradients_are_those_of_the_likelihood_of_what_was_seen() -> None:
    told = two_messages()
    score = np.random.default_rng(4).normal(0.0, 1.5, (300, 4))

    def cost(f: np.ndarray) -> np.ndarray:
        seen = np.stack([told.given[m][:, o] for m, o in zip(told.message, told.outputs, strict=True)])
        return -np.log((softmax(f) * seen).sum(axis=1))

    gradient, hessian = told(score)
    for at in range(4):
        step = np.zeros(4)
        step[at] = 1e-5
        numeric = (cost(score + step) - cost(score - step)) / 2e-5
        assert gradient[:, at] * told.information == pytest.approx(numeric, abs=1e-8)
    assert np.all(hessian > 0.0)


def test_rows_are_alike_in_blocks_and_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    score, directions = np.random.default_rng(4).normal(size=(300, 4)), np.eye(4)[:, :3]
    for told in (two_messages(), ClassWorld.of(300, 4, 2).through(k_ary(4, "1")).told):
        assert isinstance(told, ClassLikelihood)
        whole = *told(score), told.information_along(softmax(score), directions)
        with monkeypatch.context() as patch:
            patch.setattr(class_likelihood, "BLOCK", 29)
            blocks = *told(score), told.information_along(softmax(score), directions)
        for one, other in zip(whole, blocks, strict=True):
            assert one == pytest.approx(other, rel=1e-12)


@pytest.mark.parametrize("channel", [k_ary(4, "1"), kept(UNEVEN, "1"), by_subsets(4, "0.5")])
def test_the_hessian_is_the_expected_square_of_the_gradient(channel: Channel) -> None:
    """By enumeration of the outputs."""
    score = np.random.default_rng(5).normal(0.0, 0.5, (20, 4))
    p, expected = softmax(score), np.zeros((20, 4))
    told = ClassLikelihood.through(
        [channel], np.zeros(20 * channel.m, np.int8), np.repeat(np.arange(channel.m), 20), FOUR
    )
    gradient, hessian = told(np.tile(score, (channel.m, 1)))
    for output in range(channel.m):
        here = gradient[20 * output : 20 * output + 20] * told.information
        expected += (p @ channel.rows(0, 4))[:, [output]] * here**2
    assert hessian[:20] * told.information == pytest.approx(expected, rel=1e-6)


def test_two_classes_are_the_likelihood_of_two_values() -> None:
    channel, rng = k_ary(2, "1.2"), np.random.default_rng(6)
    outputs, score = rng.integers(0, 2, 500), rng.normal(size=500)
    message = np.zeros(500, np.int8)
    two = RowLikelihood.through([channel], message, outputs)
    many = ClassLikelihood.through([channel], message, outputs, channel.domain)
    gradient, hessian = many(np.stack([np.zeros(500), score], axis=1))
    binary, curvature = two(score, score)
    assert gradient[:, 1] * many.information == pytest.approx(binary * two.information)
    assert gradient[:, 0] == pytest.approx(-gradient[:, 1])
    inside = hessian[:, 1] * many.information > 0.11 * max(two.information, many.information)
    assert inside.sum() > 300
    assert (hessian[:, 1] * many.information)[inside] == pytest.approx((curvature * two.information)[inside], rel=1e-3)
    # of 500 rows half a true label more or less is a small part of a standard error
    assert many.shares[1] == pytest.approx(two.share, abs=0.02)
    assert many.told_of(np.array([1 - two.share, two.share])) == pytest.approx(two.information / two.variance)


def test_true_labels_give_multinomial_regression() -> None:
    labels = np.array([0.0, 2.0, 1.0, 3.0, 3.0, 0.0])
    told = ClassLikelihood.certain(labels, FOUR)
    score = np.random.default_rng(7).normal(size=(6, 4))
    p, (gradient, hessian) = softmax(score), told(score)
    assert gradient * told.information == pytest.approx(p - np.eye(4)[labels.astype(int)])
    assert hessian * told.information == pytest.approx(p * (1.0 - p))
    assert told.told_of(told.shares) == pytest.approx(1.0)
    assert told.shares == pytest.approx(np.array([2.5, 1.5, 1.5, 2.5]) / 8)  # half a label of each more
    with pytest.raises(InvalidLoss, match="values of the domain"):
        ClassLikelihood.certain(labels + 0.5, FOUR)


@pytest.mark.parametrize("channel", [k_ary(4, "1"), kept(UNEVEN, "2"), by_subsets(4, "0.5")])
def test_the_shares_of_classes_are_found_through_the_channel(channel: Channel) -> None:
    labels = np.random.default_rng(8).choice(4, 200_000, p=UNEVEN).astype(float)
    told = ClassLikelihood.through([channel], np.zeros(200_000, np.int8), draw(channel, labels, 1), FOUR)
    own = channel.rows(0, 4)
    # what is determined is the distribution of outputs; five standard errors
    assert told.shares @ own == pytest.approx(UNEVEN @ own, abs=5 * 0.5 / np.sqrt(200_000))
    assert np.all(told.shares > 0.0)
    if channel.m >= 4:  # all are told apart
        assert told.shares == pytest.approx(UNEVEN, abs=0.02)


def test_a_class_that_is_never_seen_keeps_a_share() -> None:
    told = ClassLikelihood.certain(np.zeros(1000), FOUR)
    assert told.shares[1:] == pytest.approx(np.full(3, 0.5 / 1002))
    silent = ClassLikelihood.through([k_ary(4, "0.0001")], np.zeros(50, np.int8), np.zeros(50, int), FOUR)
    assert silent.shares == pytest.approx(np.full(4, 0.25), abs=1e-3)


def test_rows_of_several_messages_count_for_what_their_channels_say() -> None:
    """The information of rows is the sum of the messages' own."""
    labels = np.random.default_rng(9).choice(4, 4000, p=UNEVEN).astype(float)
    channels = [k_ary(4, "0.5"), k_ary(4, "3")]
    message = (np.arange(4000) % 2).astype(np.int8)
    outputs = np.where(message == 0, draw(channels[0], labels, 1), draw(channels[1], labels, 2))
    both = ClassLikelihood.through(channels, message, outputs, FOUR)
    alone = [ClassLikelihood.through([c], np.zeros(1, np.int8), np.zeros(1, int), FOUR) for c in channels]
    wanted = np.mean([one.told_of(both.shares) for one in alone])
    assert both.told_of(both.shares) == pytest.approx(wanted)
    assert both.capacity().effective_rows == pytest.approx(4000 * wanted)
    score = np.zeros((4000, 4)) + both.start
    _, hessian = both(score)
    ratio = hessian[message == 1].mean() / hessian[message == 0].mean()
    assert ratio > 10.0  # e³ against e^½


def test_many_classes_have_fewer_shallower_trees_with_longer_steps() -> None:
    def rule(k: int) -> dict[str, float]:
        labels = np.arange(40_000) % k
        found = ClassLikelihood.certain(labels.astype(float), Domain.parse(f"0:{k - 1}")).capacity()
        return found.model_dump()

    few, many = rule(3), rule(100)
    assert few["effective_rows"] == pytest.approx(many["effective_rows"]) == pytest.approx(40_000, rel=1e-3)
    assert few["depth"] > many["depth"]
    assert many["rounds"] * 100 <= 4000
    assert many["learning_rate"] > few["learning_rate"]


def test_scores_are_straightened_and_without_signal_predict_the_shares() -> None:
    w = ClassWorld.of(40_000, 4, 8)
    told = w.through(k_ary(4, "2")).told
    assert isinstance(told, ClassLikelihood)
    logit = np.log(w.truth)
    bent = 0.5 * (logit - logit.mean(axis=1, keepdims=True)) + np.array([0.3, 0.0, -0.3, 1.0])
    found = straightened(told, bent)
    assert found.slope == pytest.approx(2.0, abs=0.2)  # five standard errors or more
    assert w.excess(found.shares(bent)) < 0.002
    silent = straightened(told, np.random.default_rng(1).permutation(logit))
    assert silent.slope < 0.05
    assert silent.shares(logit) == pytest.approx(np.tile(told.shares, (40_000, 1)), abs=0.05)
    assert straightened(told, np.zeros((40_000, 4))).shares(logit)[0] == pytest.approx(told.shares)


def test_the_softmax_is_read_as_it_is_written() -> None:
    found = Softmax(0.7, (0.1, -0.4, 0.3))
    assert Softmax.from_json(found.as_json(), 3) == found
    assert found.shares(np.array([[1e38, -1e38, 0.0]])).sum() == pytest.approx(1.0)
    for wrong in ({"slope": -1.0}, {"slope": 31.0}, {"shifts": [0.0, 0.0]}, {"shifts": [0.0, 0.0, 1e39]}):
        with pytest.raises(ValueError, match=r".+"):
            Softmax.from_json(found.as_json() | wrong, 3)


def test_which_domains_are_classes() -> None:
    assert not are_classes(None)
    assert not are_classes(Domain.parse("0:1"))
    assert are_classes(Domain.parse("0:2"))
    assert are_classes(Domain.parse("1:100"))
    for size in ("0:0", "0:100"):
        with pytest.raises(InvalidLoss, match="2 to 100"):
            are_classes(Domain.parse(size))
    assert class_names(Domain.parse("0:1:0.5")) == ["0", "0.5", "1"]
    with pytest.raises(InvalidLoss, match="whole label domain"):
        ClassLikelihood.through([k_ary(4, "1")], np.zeros(1, int), np.zeros(1, int), Domain.parse("0:4"))
