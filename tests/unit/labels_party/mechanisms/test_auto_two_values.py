"""`auto` on two labels: randomized response of all ε, which no other ε-DP channel of them can beat."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from label_dp.channels.base import Channel
from label_dp.domain import Domain
from label_dp.errors import InvalidLoss
from label_dp.losses import MatrixLoss
from label_dp.privacy import ZERO, Epsilon
from labels_party.mechanisms.auto import choose, needs_no_prior
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.model_error import model_error
from labels_party.message.plan import make_plan, resolve, uniform
from tests.support.asked import release_wish
from tests.support.asking import population as declared

E = Epsilon.parse
BINARY = Domain.parse("binary")
OTHERS = [(name, {}) for name in MECHANISMS if name != "rr"] + [("one-bit", {"clip": "auto"})]


def designed(name: str, options: dict[str, Any], prior: np.ndarray, epsilon: str, n: int) -> Channel:
    return MECHANISMS[name].design(BINARY, prior, E(epsilon), "squared", options, n)


@pytest.mark.parametrize(("name", "options"), OTHERS)
@pytest.mark.parametrize("epsilon", ["0.1", "1", "4"])
def test_every_other_mechanism_is_randomized_response_and_more_noise(
    name: str, options: dict[str, Any], epsilon: str
) -> None:
    """Its matrix W is R·T with T ≥ 0 and rows that sum to 1: what it tells, anyone can make of the message."""
    for rate in (0.001, 0.1, 0.5):
        prior = np.array([1 - rate, rate])
        best = choose(BINARY, prior, E(epsilon), "squared", 10_000).channel.matrix()
        other = designed(name, options, prior, epsilon, 10_000).matrix()
        further = np.linalg.solve(best, other)
        assert further.sum(axis=1) == pytest.approx(1.0, abs=1e-9)
        assert np.all(further >= -1e-9)


def test_a_channel_of_a_larger_epsilon_is_not_made_of_it() -> None:
    """The control of the test above."""
    best = choose(BINARY, uniform(2), E("1"), "squared", 10_000).channel.matrix()
    more = designed("rr", {}, uniform(2), "1.01", 10_000).matrix()
    assert np.linalg.solve(best, more).min() < -1e-3


@pytest.mark.parametrize("epsilon", ["0.1", "1", "4"])
@pytest.mark.parametrize("n", [1_000, 10_000_000])
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5])
def test_no_mechanism_has_the_smaller_model_error(epsilon: str, n: int, rate: float) -> None:
    prior, worse = np.array([1 - rate, rate]), 0
    best = model_error(choose(BINARY, prior, E(epsilon), "squared", n).channel, prior, n)["expected_model_error"]
    for name, options in OTHERS:
        channel = designed(name, options, prior, epsilon, n)
        if channel.m == 1:  # a constant, which needs no message
            continue
        figure = model_error(channel, prior, n)["expected_model_error"]
        assert best <= figure * (1 + 1e-9), name
        worse += figure > 1.05 * best
    assert worse >= 1  # the figures tell mechanisms apart


@pytest.mark.parametrize("domain", [BINARY, Domain.parse("10:30:20"), Domain.from_values(["-1", "2.5"])])
@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_a_plan_spends_all_of_epsilon_on_the_labels(domain: Domain, loss: str) -> None:
    shop = declared("shop", "converted", domain, E("10"))
    plan = make_plan(release_wish(E("0.5"), mechanism="auto", loss=loss), shop, 50_000)
    assert (plan.split.prior, plan.split.randomize) == (ZERO, E("0.5"))
    assert (plan.prior_source, plan.prior_method, plan.cells) == ("not used", None, None)
    for prior in (None, np.array([0.999, 0.001])):
        found = resolve(plan, domain, prior, 50_000)
        assert found.mechanism == "rr"
        assert found.channel.unbiased
        assert found.channel.satisfies(E("0.5"))
        assert not found.channel.satisfies(E("0.499"))
        assert found.why.startswith("chosen by auto: k-ary randomized response")


def test_three_values_and_other_mechanisms_still_buy_a_prior() -> None:
    shop = declared("shop", "converted", BINARY, E("10"))
    for mechanism in ("rr-on-bins", "unbiased"):
        assert make_plan(release_wish(E("0.5"), mechanism=mechanism), shop, 50_000).split.prior.nano > 0
    three = declared("shop", "converted", Domain.parse("0:2"), E("10"))
    assert make_plan(release_wish(E("0.5"), mechanism="auto"), three, 50_000).split.prior.nano > 0


@pytest.mark.parametrize("asked", [{"prior": "estimate"}, {"prior_epsilon": "0.01"}, {"prior": "latest"}])
def test_a_prior_that_is_asked_for_is_bought(asked: dict[str, Any]) -> None:
    shop = declared("shop", "converted", BINARY, E("10"))
    plan = make_plan(release_wish(E("0.5"), mechanism="auto", **asked), shop, 50_000)
    assert plan.prior_source == "estimated"
    assert plan.split.prior.nano > 0
    assert plan.split.total == E("0.5")
    assert resolve(plan, BINARY, np.array([0.9, 0.1]), 50_000).mechanism == "rr"


def test_a_prior_that_is_given_costs_nothing_and_is_kept() -> None:
    shop = declared("shop", "converted", BINARY, E("10"))
    for release, source in ((None, "declared public by the owner"), ("rel_1", "carried over")):
        wish = release_wish(E("0.5"), given_prior=np.array([0.9, 0.1]), carried_from=release)
        plan = make_plan(wish, shop, 50_000)
        assert (plan.prior_source, plan.split.prior) == (source, ZERO)


def test_a_matrix_decides_by_its_outputs() -> None:
    """Randomized response has the labels as outputs; a matrix without them is solved by bins, under a prior."""
    shop = declared("shop", "converted", BINARY, E("10"))
    listed = MatrixLoss(BINARY.values, np.array([0.0, 0.5, 1.0]), np.array([[0.0, 0.3, 1.0], [1.0, 0.3, 0.0]]))
    between = MatrixLoss(BINARY.values, np.array([0.2, 0.8]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert needs_no_prior(BINARY, listed)
    assert not needs_no_prior(BINARY, between)
    assert make_plan(release_wish(E("1"), mechanism="auto", loss=listed), shop, 1000).prior_source == "not used"
    plan = make_plan(release_wish(E("1"), mechanism="auto", loss=between), shop, 1000)
    assert plan.prior_source == "estimated"
    assert resolve(plan, BINARY, np.array([0.6, 0.4]), 1000).mechanism == "rr-on-bins"


def test_the_log_loss_is_for_shares_only() -> None:
    plan = make_plan(
        release_wish(E("1"), mechanism="auto", loss="log"), declared("shop", "converted", BINARY, E("10")), 1000
    )
    assert (plan.loss_name, plan.prior_source) == ("log", "not used")
    with pytest.raises(InvalidLoss, match="domain within 0 to 1"):
        make_plan(
            release_wish(E("1"), mechanism="auto", loss="log"),
            declared("shop", "revenue", Domain.parse("0:2"), E("10")),
            1000,
        )
