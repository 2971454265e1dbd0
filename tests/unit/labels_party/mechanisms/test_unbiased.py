"""The unbiased randomizer: as good as the full linear program, exact means and ε, and what it does with bad input."""

from __future__ import annotations

import json
import time
from fractions import Fraction

import numpy as np
import pytest

from label_dp.channels.base import N
from label_dp.channels.knots import KnotsChannel
from label_dp.channels.one_bit import OneBitChannel
from label_dp.channels.registry import channel_from_json
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidLoss, InvalidMechanism, InvalidPrior, MalformedManifest
from label_dp.losses import MatrixLoss, get_loss
from label_dp.privacy import Epsilon
from labels_party.mechanisms import linear_program
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.knots import exact_channel, exact_labels, place_knots, solvable_odds
from labels_party.mechanisms.one_bit import one_bit_channel
from labels_party.mechanisms.unbiased import KnotProblem, unbiased_channel


def prior_of(k: int, scale: float = 6.0) -> np.ndarray:
    prior = np.exp(-np.arange(k) * scale / k)
    return prior / prior.sum()


def knots_channel(domain: str = "0:60", epsilon: str = "1") -> KnotsChannel:
    d = Domain.parse(domain)
    channel = unbiased_channel(d, prior_of(d.k), Epsilon.parse(epsilon))
    assert isinstance(channel, KnotsChannel)
    return channel


def full_program(labels: np.ndarray, prior: np.ndarray, epsilon: float, outputs: np.ndarray) -> float:
    """Least expected squared error of unbiased ε-DP rows over `outputs`, all labels × all outputs free."""
    from scipy import sparse
    from scipy.optimize import linprog

    k, m = labels.size, outputs.size
    cost = prior[:, None] * (outputs[None, :] - labels[:, None]) ** 2
    rows = sparse.kron(sparse.eye_array(k), np.stack([np.ones(m), outputs]))
    equal = sparse.hstack([rows, sparse.csr_array((2 * k, m))])
    every = sparse.kron(np.ones((k, 1)), sparse.eye_array(m))
    free = sparse.eye_array(k * m)
    limits = sparse.vstack([sparse.hstack([-free, every]), sparse.hstack([free, -np.exp(epsilon) * every])])
    wanted = np.stack([np.ones(k), labels], axis=1).ravel()
    objective = np.concatenate([cost.ravel(), np.zeros(m)])
    solved = linprog(objective, limits.tocsr(), np.zeros(2 * k * m), equal.tocsr(), wanted, method="highs")
    assert solved.status == 0
    return float(solved.fun)


@pytest.mark.parametrize(("k", "epsilon", "inner"), [(60, "1", 7), (30, "2", 30), (20, "4", 39)])
def test_its_variance_is_within_one_percent_of_the_full_program(k: int, epsilon: str, inner: int) -> None:
    domain, prior, eps = Domain.parse(f"1:{k}"), prior_of(k), float(epsilon)
    span = (k - 1) / 2 / np.tanh(eps / 2)
    grids = [np.linspace(-1.2, 1.2, 13) * span, [-span, span], np.linspace(1 - k, k - 1, inner) / 2]
    outputs = (k + 1) / 2 + np.unique(np.concatenate(grids))
    best = full_program(domain.values, prior, eps, outputs)
    channel = unbiased_channel(domain, prior, Epsilon.parse(epsilon))
    assert channel.expected_loss(prior, "squared") <= 1.01 * best
    assert one_bit_channel(domain, Epsilon.parse(epsilon)).expected_loss(prior, "squared") > 1.01 * best  # a control


MUCH_OF_ONE = np.array([9.0] + [0.1] * 10) / 10


@pytest.mark.parametrize(
    ("prior", "epsilon", "loss"),
    [  # the farthest from the least of 300 random settings each, with rounds that end early and with these
        (MUCH_OF_ONE, "11.153", "squared"),
        (np.ones(5) / 5, "11.333", "squared"),
        (0.9 ** np.arange(11) / np.sum(0.9 ** np.arange(11)), "4.959", "absolute"),
        (np.array([9.0] + [0.25] * 4) / 10, "11.301", "squared"),
        (np.ones(41) / 41, "10.926", "squared"),
    ],
)
def test_its_loss_is_less_than_two_percent_above_the_least_on_its_knots(
    prior: np.ndarray, epsilon: str, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = Domain.parse(f"0:{prior.size - 1}")
    problem = KnotProblem(domain, prior, np.arange(prior.size))
    asked = problem.at, problem.cost(get_loss(loss)), solvable_odds(Epsilon.parse(epsilon))
    found = [linear_program.best_rows(*asked, problem.first_outputs(Epsilon.parse(epsilon))).loss]
    for rounds, window in ((1, np.inf), (40, np.inf)):
        monkeypatch.setattr(linear_program, "ROUNDS", rounds)
        monkeypatch.setattr(linear_program, "ENOUGH", -1.0)
        monkeypatch.setattr(linear_program, "WINDOW", window)
        monkeypatch.setattr(linear_program, "LARGE_WINDOW", window)
        found.append(linear_program.best_rows(*asked, problem.first_outputs(Epsilon.parse(epsilon))).loss)
    usual, first, least = found
    assert least * (1 - 1e-9) <= usual < 1.02 * least
    assert first > 1.02 * least  # a control: the first outputs alone do not do


@pytest.mark.parametrize("domain", ["0:60", "0:1000", "-3:5:0.1"])
@pytest.mark.parametrize("epsilon", ["0.5", "4"])
def test_means_are_exact_and_the_residual_bias_is_stated(domain: str, epsilon: str) -> None:
    channel = knots_channel(domain, epsilon)
    span = Fraction(float(channel.labels[-1] - channel.labels[0]))
    assert channel.unbiased
    assert Fraction(channel.residual_bias) < span / 10**9
    outputs = [Fraction(v) for v in channel.outputs.tolist()]
    rows = [[Fraction(w, N) for w in row] for row in channel.weights.tolist()]
    means = [sum(p * v for p, v in zip(row, outputs, strict=True)) for row in rows]
    exact = exact_labels(channel.domain, np.arange(channel.k))
    for position in range(0, channel.k, max(1, channel.k // 40)):
        share = Fraction(int(channel.upper_chance[position]), N)
        mean = (1 - share) * means[channel.lower[position]] + share * means[channel.upper[position]]
        assert abs(mean - exact[position]) <= Fraction(channel.residual_bias)


def test_figures_are_those_of_the_matrix() -> None:
    channel, rng = knots_channel("0:300", "1.5"), np.random.default_rng(0)
    M, prior = channel.matrix(), rng.random(301)
    prior /= prior.sum()
    assert channel.knots.size < channel.k
    assert M.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    assert channel.output_distribution(prior) == pytest.approx(prior @ M, abs=1e-14)
    for values in (channel.outputs, rng.normal(1e3, 5.0, channel.m)):
        mean = M @ values
        means, variances = channel.moments(values)
        assert means == pytest.approx(mean, rel=1e-12)
        assert variances == pytest.approx((M * (values - mean[:, None]) ** 2).sum(axis=1), rel=1e-9)


def test_a_large_domain_takes_seconds_at_most() -> None:
    start = time.process_time()
    channel = knots_channel("0:9999", "2")
    assert time.process_time() - start < 4.0  # a third of a second as a rule
    one_bit = one_bit_channel(channel.domain, Epsilon.parse("2"))
    assert channel.expected_loss(prior_of(10_000), "squared") < 0.7 * one_bit.expected_loss(prior_of(10_000), "squared")
    assert len(json.dumps(channel.as_json())) < 1 << 18


def test_control_rows_that_are_not_repaired_shifted_or_swapped_are_noticed() -> None:
    channel = knots_channel("0:60", "1")
    weights = channel.weights.copy()
    i, j = int(np.argmax(weights[30])), int(np.argmin(weights[30]))
    moved = weights.copy()
    moved[30, j] += weights[30, i] // 1000
    moved[30, i] -= weights[30, i] // 1000
    shifted = KnotsChannel(domain=channel.domain, knots=channel.knots, outputs=channel.outputs, weights=moved)
    assert not shifted.unbiased
    assert shifted.residual_bias > 1e-3
    missing = weights.copy()
    missing[30, i] -= np.uint64(1)
    with pytest.raises(InvalidMechanism, match="sum to"):
        KnotsChannel(domain=channel.domain, knots=channel.knots, outputs=channel.outputs, weights=missing)
    swapped = weights.copy()
    swapped[[5, 55]] = swapped[[55, 5]]
    wrong = KnotsChannel(domain=channel.domain, knots=channel.knots, outputs=channel.outputs, weights=swapped)
    assert wrong.satisfies(Epsilon.parse("1"))
    assert not wrong.unbiased
    raised = weights.copy()
    top = int(np.argmax(weights.max(axis=0) / weights.min(axis=0)))
    row = int(np.argmin(weights[:, top]))
    other = int(np.argmax(weights[row]))
    raised[row, other] += weights[row, top] // 50
    raised[row, top] -= weights[row, top] // 50
    leaky = KnotsChannel(domain=channel.domain, knots=channel.knots, outputs=channel.outputs, weights=raised)
    assert not leaky.satisfies(Epsilon.parse("1"))


def test_rows_that_need_more_than_the_slack_are_refused_not_loosened() -> None:
    channel = knots_channel("0:10", "1")
    rows, means = channel.rows(0, 11), exact_labels(channel.domain, channel.knots)
    for epsilon in ("0.1", "0.5"):
        with pytest.raises(InvalidEpsilon):
            exact_channel(channel.domain, channel.knots, channel.outputs, rows, means, Epsilon.parse(epsilon))


def test_the_manifest_form_is_read_strictly() -> None:
    channel = knots_channel("0:99", "0.5")
    data = json.loads(json.dumps(channel.as_json()))
    again = channel_from_json(data, channel.domain)
    assert again.as_json() == data
    for change in (
        {"residual_bias": "0.0"},
        {"residual_bias": repr(channel.residual_bias * 2)},
        {"knots": ["0", *data["knots"][2:], "100"]},
        {"knots": data["knots"][::-1]},
        {"knots": data["knots"][:-1]},
        {"weights": data["weights"][:-1]},
        {"weights": [data["weights"][0][:-1], *data["weights"][1:]]},
        {"weights": [["0", *data["weights"][0][1:]], *data["weights"][1:]]},
        {"outputs": data["outputs"][::-1]},
        {"knots": [str(i) for i in range(20_000)]},
        {"N": "1"},
    ):
        with pytest.raises(MalformedManifest):
            channel_from_json(data | change, channel.domain)
    with pytest.raises(MalformedManifest):
        channel_from_json(data, Domain.parse("0:98"))


@pytest.mark.parametrize("epsilon", ["0.000000001", "0.01", "0.1", "1", "12", "40", "1000000"])
def test_any_epsilon_gives_an_unbiased_channel_or_a_refusal(epsilon: str) -> None:
    eps = Epsilon.parse(epsilon)
    for domain in (Domain.parse("0:1"), Domain.parse("0:40"), Domain.from_values([-5, 0, "0.25", 90, 1000])):
        channel = unbiased_channel(domain, prior_of(domain.k), eps)
        assert channel.satisfies(eps)
        assert channel.unbiased


def test_odd_priors_and_labels() -> None:
    eps, domain = Epsilon.parse("1.5"), Domain.parse("0:200")
    zeros, one, ends = np.zeros(201), np.zeros(201), np.zeros(201)
    zeros[[3, 70, 71]], one[50], ends[[0, 200]] = (0.5, 0.25, 0.25), 1.0, 0.5
    for prior in (zeros, one, ends, np.full(201, 1 / 201)):
        channel = unbiased_channel(domain, prior, eps)
        assert channel.unbiased
        assert channel.expected_loss(prior, "squared") <= one_bit_channel(domain, eps).expected_loss(prior, "squared")
    huge = Domain.parse("100000000:100000400")
    channel = unbiased_channel(huge, prior_of(401), eps)
    assert channel.unbiased
    assert channel.moments(channel.outputs)[0] == pytest.approx(huge.values, abs=1e-6)
    constant = unbiased_channel(Domain.parse("5:5"), np.ones(1), eps)
    assert constant.outputs.tolist() == [5.0]


@pytest.mark.parametrize(("loss", "of"), [("absolute", "0:40"), ("poisson", "0:40"), ("log", "0:1:0.025")])
def test_other_losses(loss: str, of: str) -> None:
    eps, domain, prior = Epsilon.parse("1"), Domain.parse(of), prior_of(41)
    channel = unbiased_channel(domain, prior, eps, loss)
    assert channel.unbiased
    judged = loss if loss == "absolute" else "squared"
    assert channel.expected_loss(prior, judged) < 0.97 * one_bit_channel(domain, eps).expected_loss(prior, judged)


def test_refusals() -> None:
    design, domain, prior = MECHANISMS["unbiased"].design, Domain.parse("0:9"), prior_of(10)
    with pytest.raises(InvalidPrior, match="needs a prior"):
        design(domain, None, Epsilon.parse("1"), "squared", {})
    with pytest.raises(InvalidPrior):
        design(domain, prior[:-1], Epsilon.parse("1"), "squared", {})
    with pytest.raises(InvalidEpsilon):
        design(domain, prior, Epsilon(0), "squared", {})
    with pytest.raises(InvalidLoss):
        design(Domain.parse("-1:8"), prior, Epsilon.parse("1"), "poisson", {})
    table = MatrixLoss(domain.values, np.array([0.0, 5.0]), np.ones((10, 2)))
    with pytest.raises(InvalidMechanism, match="matrix"):
        design(domain, prior, Epsilon.parse("1"), table, {})
    assert isinstance(design(domain, prior, Epsilon.parse("0.01"), "squared", {}), OneBitChannel)


def test_knots_have_the_ends_and_the_heavy_labels() -> None:
    labels = np.arange(5001.0)
    prior = np.full(5001, 0.5 / 5001)
    prior[[7, 1234]] += 0.25
    knots = place_knots(labels, prior, 41)
    assert {0, 7, 1234, 5000} <= set(knots.tolist())
    assert knots.size <= 45
    assert np.array_equal(place_knots(labels[:41], prior[:41], 41), np.arange(41))
