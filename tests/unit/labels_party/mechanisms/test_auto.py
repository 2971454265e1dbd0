"""`auto`: the candidate of least expected model error under a private prior, and what it does at the edges."""

from __future__ import annotations

import numpy as np
import pytest

from label_dp.channels.one_bit import OneBitChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism
from label_dp.losses import MatrixLoss
from label_dp.privacy import Epsilon
from labels_party.mechanisms import auto
from labels_party.mechanisms.auto import CANDIDATES, Candidate, choose
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.model_error import model_error
from labels_party.message.plan import make_plan, resolve, uniform
from tests.support.asked import release_wish
from tests.support.asking import population as declared

E = Epsilon.parse
SKEWED = Domain.parse("0:60")


def skewed(domain: Domain) -> np.ndarray:
    p = np.exp(-domain.values / 9.0)
    p[-1] += 0.05 * p.sum()
    return p / p.sum()


@pytest.mark.parametrize("epsilon", ["0.1", "1", "4"])
def test_the_best_candidate_is_taken_with_its_epsilon_and_the_reason(epsilon: str) -> None:
    prior, n = skewed(SKEWED), 50_000
    choice = choose(SKEWED, prior, E(epsilon), "squared", n)
    figures = [j.figure for j in choice.ranking]
    assert figures == sorted(figures)
    assert {j.candidate.name for j in choice.ranking} >= {"rr-on-bins", "one-bit", "unbiased"}
    for judged in choice.ranking:
        assert judged.channel.satisfies(E(epsilon))
        assert judged.figure == model_error(judged.channel, prior, n)["expected_model_error"]
    best = choice.ranking[0]
    assert choice.channel is best.channel
    assert choice.why.startswith(
        f"chosen by auto: {best.candidate.called}, expected model error {best.figure:.4g}; next "
    )
    # the figures tell candidates apart
    assert figures[-1] > 1.2 * figures[0]


def test_the_same_question_has_the_same_answer_and_another_epsilon_another() -> None:
    prior = skewed(SKEWED)
    low, again, high = (choose(SKEWED, prior, E(e), "squared", 50_000, slow=False) for e in ("0.1", "0.1", "6"))
    assert low.channel.m < high.channel.m
    assert again.channel.as_json() == low.channel.as_json()


def test_of_sums_that_are_mostly_zero_little_noise_comes_first() -> None:
    """Whether there is a sale tells most of what features can tell: amounts are clipped far below their mean."""
    domain, n = Domain.parse("0:500"), 150_000
    prior = np.exp(-domain.values / 30.0)
    prior[0] = 0.0
    prior *= 0.03 / prior.sum()
    prior[0] = 0.97
    low = choose(domain, prior, E("1"), "squared", n)
    assert low.why.startswith("chosen by auto: one-bit with clip auto")
    assert isinstance(low.channel, OneBitChannel)
    assert low.channel.low == 0
    assert low.channel.high < 30
    # the same labels a step above zero are judged as any others, and keep their tail
    shifted = choose(Domain.parse("1:501"), prior, E("1"), "squared", n)
    assert isinstance(shifted.channel, OneBitChannel)
    assert shifted.channel.high > 3 * low.channel.high


def test_a_loss_matrix_is_judged_by_label_loss() -> None:
    domain = Domain.parse("0:5")
    loss = MatrixLoss(domain.values, domain.values, 1.0 - np.eye(6))
    choice = choose(domain, np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1]), E("1"), loss, 1000)
    assert "expected label loss" in choice.why
    assert choice.name == "rr-on-bins"


def test_candidates_that_do_not_fit_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    uneven = Domain.from_values(["0", "1", "10", "11.5"])
    assert choose(uneven, np.full(4, 0.25), E("1"), "squared", 1000).ranking
    monkeypatch.setattr(auto, "CANDIDATES", (Candidate("discrete-laplace", {}, "noise"),))
    with pytest.raises(InvalidMechanism, match="No mechanism fits"):
        choose(uneven, np.full(4, 0.25), E("1"), "squared", 1000)


def test_linear_programs_are_left_out_on_large_domains_and_where_so_asked() -> None:
    slow = {c.name for c in CANDIDATES if c.slow}
    assert slow <= set(MECHANISMS)
    quick = choose(SKEWED, skewed(SKEWED), E("4"), "squared", 50_000, slow=False)
    assert not slow & {j.candidate.name for j in quick.ranking}
    large = Domain.parse("0:100000")
    assert not slow & {j.candidate.name for j in choose(large, skewed(large), E("1"), "squared", 10_000).ranking}


@pytest.mark.parametrize(
    ("domain", "prior"),
    [
        ("3:3", [1.0]),
        ("0:1", [0.0, 1.0]),
        ("0:1", [0.5, 0.5]),
        ("0:4", [0.0, 0.0, 1.0, 0.0, 0.0]),
        ("0:4", [0.5, 0.0, 0.0, 0.0, 0.5]),
    ],
)
@pytest.mark.parametrize("n", [1, 1000])
@pytest.mark.parametrize("epsilon", ["0.001", "1", "30"])
def test_degenerate_priors_give_a_channel_of_the_epsilon(domain: str, prior: list[float], n: int, epsilon: str) -> None:
    choice = choose(Domain.parse(domain), np.array(prior), E(epsilon), "squared", n)
    assert choice.channel.satisfies(E(epsilon))
    assert all(np.isfinite(j.figure) for j in choice.ranking)


def test_a_plan_splits_epsilon_before_any_draw_and_refuses_options() -> None:
    shop = declared("shop", "revenue", SKEWED, E("10"))
    plan = make_plan(release_wish(E("1"), mechanism="auto"), shop, 50_000)
    assert plan.mechanism == "auto"
    assert plan.split.total == E("1")
    assert plan.split.prior.nano > 0
    found = [resolve(plan, SKEWED, p, 50_000) for p in (uniform(61), skewed(SKEWED))]
    assert all(r.channel.satisfies(plan.split.randomize) for r in found)
    assert all(r.mechanism in MECHANISMS and r.why.startswith("chosen by auto") for r in found)
    assert found[0].channel.as_json() != found[1].channel.as_json()
    with pytest.raises(InvalidMechanism, match="chooses options itself"):
        make_plan(release_wish(E("1"), mechanism="auto", options={"clip": "auto"}), shop, 1000)
    with pytest.raises(InvalidMechanism, match="known ones are auto, rr-on-bins"):
        make_plan(release_wish(E("1"), mechanism="magic"), shop, 1000)


def test_with_very_few_labels_nothing_is_spent_on_a_prior() -> None:
    shop = declared("shop", "revenue", SKEWED, E("10"))
    plan = make_plan(release_wish(E("0.05"), mechanism="auto"), shop, 300)
    assert (plan.split.prior, plan.prior_source) == (E("0"), "uniform")
    assert resolve(plan, SKEWED, uniform(61), 300).channel.satisfies(E("0.05"))
