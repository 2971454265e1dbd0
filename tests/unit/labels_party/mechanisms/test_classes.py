"""Classes: φ² is Pearson's contingency, `auto` takes its largest, and whether a prior is bought hangs on k, n and ε."""

from __future__ import annotations

import inspect
import math
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from label_dp.channels.base import Channel, N
from label_dp.channels.information import share_of_information
from label_dp.channels.top_labels import TopLabelsChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidInput, InvalidLoss, InvalidMechanism
from label_dp.losses import LOG
from label_dp.privacy import ZERO, Epsilon
from labels_party.companions.kinds.prediction.plan import make_plan as predictor_plan
from labels_party.ledger.populations import Population
from labels_party.mechanisms.auto import choose
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.classes import buys_prior, class_prior, most_informative
from labels_party.mechanisms.randomized_response import rr_weights
from labels_party.mechanisms.subset_selection import even_share
from labels_party.message.plan import make_plan, resolve
from tests.benchmarks.around.classes import measured
from tests.support.asked import release_wish
from tests.support.asking import population as declared
from tests.support.asking import predictor

E = Epsilon.parse


def classes(k: int) -> Domain:
    return Domain.from_names([f"class {i}" for i in range(k)])


def shares(k: int, rng: np.random.Generator) -> np.ndarray:
    p = rng.permutation(np.arange(1, k + 1) ** -rng.choice([0.0, 0.5, 1.0, 2.0, 3.0])) * rng.uniform(0.5, 1.5, k)
    return np.asarray(p / p.sum())


def contingency(prior: np.ndarray, matrix: np.ndarray) -> float:
    """χ²/(n·(k − 1)) by its definition: squared differences from independence, exactly."""
    p, w = [Fraction(float(x)) for x in prior], [[Fraction(float(x)) for x in row] for row in matrix]
    seen = [sum((p[y] * w[y][o] for y in range(len(p))), Fraction(0)) for o in range(len(w[0]))]
    total = Fraction(0)
    for y, share in enumerate(p):
        for o, q in enumerate(seen):
            expected = share * q
            if expected:
                total += (share * w[y][o] - expected) ** 2 / expected
    return float(total / (len(p) - 1))


def on(kept: tuple[int, ...], domain: Domain, epsilon: Epsilon) -> Channel:
    A, B = rr_weights(epsilon, len(kept))
    return TopLabelsChannel(domain=domain, kept=np.array(kept), A=A, B=B)


@pytest.mark.parametrize("k", [3, 7])
@pytest.mark.parametrize("epsilon", ["0.3", "1", "5"])
def test_the_share_of_information_is_pearsons_contingency(k: int, epsilon: str) -> None:
    prior = shares(k, np.random.default_rng(k))
    for name in ("rr", "rr-with-prior", "subset-selection"):
        channel = MECHANISMS[name].design(classes(k), prior, E(epsilon), LOG, {}, 1000)
        found = share_of_information(channel, prior)
        assert found == pytest.approx(contingency(prior, channel.matrix()), rel=1e-9)
        assert 0 < found < 1


def test_of_two_labels_it_is_the_squared_correlation() -> None:
    channel = MECHANISMS["rr"].design(classes(2), None, E("1"), LOG, {}, 1000)
    p, (A, B) = 0.3, rr_weights(E("1"), 2)
    r = (p * A + (1 - p) * B) / N
    squared = ((A - B) / N) ** 2 * p * (1 - p) / (r * (1 - r))
    assert share_of_information(channel, np.array([1 - p, p])) == pytest.approx(squared)


def test_without_noise_it_is_one_and_of_a_constant_nothing() -> None:
    prior = np.array([0.5, 0.3, 0.2])
    plain = MECHANISMS["rr"].design(classes(3), None, E("40"), LOG, {}, 1000)
    assert share_of_information(plain, prior) == pytest.approx(1.0)
    silent = on((0, 1, 2), classes(3), E("0.000000001"))
    assert share_of_information(silent, prior) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_auto_takes_the_best_of_subsets_and_every_set_of_kept_classes(seed: int) -> None:
    """By brute force over all sets of at least two classes."""
    rng = np.random.default_rng(seed)
    k, epsilon = int(rng.integers(3, 7)), E(str(rng.choice(["0.2", "0.7", "1.5", "3"])))
    domain, prior = classes(k), shares(k, rng)
    every = {
        kept: share_of_information(on(kept, domain, epsilon), prior)
        for d in range(2, k + 1)
        for kept in combinations(range(k), d)
    }
    subsets = MECHANISMS["subset-selection"].design(domain, None, epsilon, LOG, {}, 5000)
    every[()] = share_of_information(subsets, prior)
    choice = choose(domain, prior, epsilon, LOG, 5000)
    figures = [share_of_information(judged.channel, prior) for judged in choice.ranking]
    assert figures[0] == pytest.approx(max(every.values()), rel=1e-9)
    assert figures == sorted(figures, reverse=True)
    assert choice.channel.satisfies(epsilon)
    assert f"{figures[0]:.3g}" in choice.why


def test_the_most_often_right_set_would_lose() -> None:
    """The control: what RRWithPrior takes of numbers is not what tells most of classes."""
    prior = np.arange(1, 31.0) ** -2
    prior /= prior.sum()
    numbers = MECHANISMS["rr-with-prior"].design(Domain.parse("0:29"), prior, E("1"), "squared", {}, 1000)
    best = MECHANISMS["rr-with-prior"].design(classes(30), prior, E("1"), LOG, {}, 1000)
    assert share_of_information(numbers, prior) < 0.8 * share_of_information(best, prior)


def test_under_like_shares_all_classes_are_kept() -> None:
    assert most_informative(np.full(12, 1 / 12), E("1")) == 12
    assert choose(classes(12), np.full(12, 1 / 12), E("3"), LOG, 1000).name == "rr"


@pytest.mark.parametrize(
    ("k", "epsilon", "exponent", "name"),
    [
        (100, "0.5", 0.0, "subset-selection"),
        (30, "1", 1.0, "subset-selection"),
        (5, "1", 0.0, "rr"),  # subsets of one class are randomized response, which is the simpler name
        (30, "1", 3.0, "rr-with-prior"),
    ],
)
def test_auto_takes_subsets_of_many_classes_at_small_epsilon(k: int, epsilon: str, exponent: float, name: str) -> None:
    prior = np.arange(1.0, k + 1) ** -exponent
    choice = choose(classes(k), prior / prior.sum(), E(epsilon), LOG, 1000)
    assert choice.name == name
    assert ("subset selection (subsets of" in choice.why.split("; next")[0]) == (name == "subset-selection")
    assert len(choice.ranking) == 3


def test_the_log_loss_is_the_entropy_that_is_left() -> None:
    prior = np.array([0.5, 0.3, 0.2])
    channel = MECHANISMS["rr"].design(classes(3), None, E("1"), LOG, {}, 1000)
    joint = prior[:, None] * channel.matrix()
    left = -sum(joint[y, o] * math.log(joint[y, o] / joint[:, o].sum()) for y in range(3) for o in range(3))
    assert channel.expected_loss(prior, "log") == pytest.approx(left)
    assert channel.expected_loss(prior, "log") < -float(prior @ np.log(prior))


@pytest.mark.parametrize(("k", "epsilon"), [(3, "1"), (17, "0.1"), (17, "0.5"), (100, "2")])
def test_a_prior_is_bought_of_few_labels_without_noise(k: int, epsilon: str) -> None:
    """Two for each class of what randomizers leave without a prior; known to anybody who knows n, k and ε."""
    assert list(inspect.signature(buys_prior).parameters) == ["k", "n", "epsilon"]
    share = 1 - choose(classes(k), np.full(k, 1 / k), E(epsilon), LOG, 1).ranking[0].figure
    assert even_share(k, E(epsilon)) == pytest.approx(share)
    assert buys_prior(k, math.floor(0.99 * 2 * k / share), E(epsilon))
    assert not buys_prior(k, math.ceil(1.01 * 2 * k / share), E(epsilon))


@pytest.mark.parametrize("n", [1, 100, 10**4, 10**7])
@pytest.mark.parametrize("epsilon", ["0.01", "1", "8"])
def test_a_prior_has_a_cell_for_every_class_and_costs_a_tenth_at_most(n: int, epsilon: str) -> None:
    plan = class_prior("auto", k=40, n=n, epsilon=E(epsilon))
    assert plan.cells.tolist() == list(range(41))
    assert plan.epsilon > ZERO
    assert plan.epsilon.fraction <= E(epsilon).fraction / 10
    assert class_prior(E("0.003"), k=40, n=n, epsilon=E(epsilon)).epsilon == E("0.003")


def of(domain: Any) -> Population:
    return declared("shop", "category", Domain.from_json(domain), "9")


NAMES = [f"class {i}" for i in range(30)]


@pytest.mark.parametrize(
    ("n", "asked", "bought"), [(10**5, {}, False), (10**5, {"prior": "estimate"}, True), (1000, {}, True)]
)
def test_a_plan_buys_a_prior_by_the_rule_or_where_asked(n: int, asked: dict[str, Any], bought: bool) -> None:
    population = of(NAMES)
    plan = make_plan(release_wish(E("1"), **asked), population, n)
    assert (plan.prior_source, plan.loss_name) == ("estimated" if bought else "not used", "log")
    assert (plan.split.prior > ZERO) == bought
    skewed = np.arange(1, 31.0) ** -3
    prior = skewed / skewed.sum() if bought else None
    assert resolve(plan, population.domain, prior, n).mechanism == ("rr-with-prior" if bought else "subset-selection")
    assert plan.split.total == E("1")


@pytest.mark.parametrize("name", sorted(set(MECHANISMS) - {"rr", "rr-with-prior", "subset-selection"}))
def test_what_needs_an_order_is_refused(name: str) -> None:
    with pytest.raises(
        InvalidMechanism, match=r"no order, so the mechanism is auto, rr, rr-with-prior or subset-selection\."
    ):
        make_plan(release_wish(E("1"), mechanism=name), of(NAMES), 1000)
    assert make_plan(release_wish(E("1"), mechanism=name), of("0:29"), 1000).mechanism == name


@pytest.mark.parametrize("loss", ["squared", "absolute", "poisson"])
def test_the_only_loss_is_log(loss: str) -> None:
    with pytest.raises(InvalidLoss, match="no order, so the loss is 'log'"):
        make_plan(release_wish(E("1"), loss=loss), of(NAMES), 1000)
    assert make_plan(release_wish(E("1"), loss=loss), of(["no", "yes"]), 1000).loss_name == loss
    assert make_plan(release_wish(E("1"), loss="log"), of(NAMES), 1000).loss_name == "log"


def test_bounds_are_not_bought() -> None:
    with pytest.raises(InvalidInput, match="no quantile to clip at"):
        make_plan(release_wish(E("1"), clip_quantiles=["0.9"], clip_epsilon=E("0.1")), of(NAMES), 1000)


def test_two_names_are_planned_as_binary() -> None:
    plans = [make_plan(release_wish(E("1")), of(d), 1000) for d in (["no", "yes"], "binary")]
    assert plans[0].as_json() == plans[1].as_json()


def test_a_predictor_needs_numbers_or_two_names() -> None:
    asked = predictor(method="stable-ridge", epsilon="0.1", epsilon_cap="1", features=[{"name": "x", "range": [0, 9]}])
    with pytest.raises(InvalidInput, match=r"are 30 classes with names\. Release a message"):
        predictor_plan(asked, of(NAMES).domain, 1000)
    assert predictor_plan(asked, of(["no", "yes"]).domain, 1000).method == "stable-ridge"


def mean_gain(k: int, n: int, epsilon: str) -> float:
    """Mean log of what buying a prior multiplies φ² by, over equal shares and Zipf's law, 3 draws each."""
    found = measured(k, n, E(epsilon), 3, np.random.default_rng(1))
    return sum(map(math.log, found.values())) / len(found)


def test_a_prior_gains_little_or_loses() -> None:
    """40 such means had the average −0.007 and the standard deviation 0.015 in the first setting, −0.176 and 0.039 in
    the second: either test fails by chance less than once in 10⁵ times."""
    assert abs(mean_gain(30, 10_000, "1")) < 0.1
    assert mean_gain(10, 1_000, "4") < 0


@pytest.mark.parametrize(
    ("k", "epsilon", "goal"), [(100, "0.5", 15.0), (100, "1", 9.6), (100, "2", 3.8), (30, "0.5", 4.9)]
)
def test_many_classes_are_worth_many_times_the_rows(k: int, epsilon: str, goal: float) -> None:
    """Under equal shares, as `make around ARGS=classes` has it; the control is randomized response itself."""
    even = np.full(k, 1 / k)
    plain, subsets = (
        share_of_information(MECHANISMS[name].design(classes(k), even, E(epsilon), LOG, {}, 1), even)
        for name in ("rr", "subset-selection")
    )
    assert subsets / plain >= goal
    assert most_informative(even, E(epsilon)) == k
