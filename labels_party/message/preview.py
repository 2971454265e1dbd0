"""Preview of an ε before it is spent: from n, k, ε and a public or already private prior (invariant charge-for-labels).

The recommendation is what `auto` (`labels_party.mechanisms.auto`) would choose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import Channel, N
from label_dp.channels.information import RULE as INFORMATION
from label_dp.channels.information import share_of_information
from label_dp.channels.model_error import RULE, sums_below
from label_dp.channels.rr import RRChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidInput, InvalidMechanism
from label_dp.losses import Loss, get_loss
from label_dp.numbers import BadSpelling, decimal_of, rounded_up
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from label_dp.schemas.json_types import JsonObject
from label_dp.schemas.release import Release
from label_dp.schemas.replies import PlanClip, PlanOut, PlanRate, PlanWorth, Recommendation
from labels_party.ledger.people import PeopleAccount
from labels_party.ledger.populations import Population
from labels_party.mechanisms.auto import AUTO, CANDIDATES, WHY_TWO, Choice, choose, needs_no_prior
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.model_error import model_error
from labels_party.mechanisms.prior import SENSITIVITY
from labels_party.message.classes import loss_on
from labels_party.message.clipping import clip_prior, expected_ends, far_out, rank_error
from labels_party.message.plan import LISTED, GivenPrior, ReleaseRequest, split_epsilon, uniform
from labels_party.message.request import LATEST

FloatArray = npt.NDArray[np.float64]

USED = frozenset(candidate.name for candidate in CANDIDATES)
SLOW = frozenset(candidate.name for candidate in CANDIDATES if candidate.slow)
SLOW_WORK = 10_000  # most labels times ε values for which a plan solves linear programs
OUTLINED = 400  # most labels of an outline
USED_AT_LEAST = 0.9  # share of a charge that a channel should prove; a plan reports less
LARGEST_K = 20_000  # labels above which a plan lists only what auto may choose


def preview(
    population: Population,
    epsilons: list[Epsilon],
    loss: str | None,
    n: int,
    given: GivenPrior | None,
    spent: Epsilon,
    *,
    prior: str | None = None,
    clipping: tuple[tuple[str, ...], Epsilon] = ((), ZERO),
    assumed: list[str] | None = None,
    people: PeopleAccount | None = None,
    codes: int = 8,
) -> PlanOut:
    """Describe each mechanism at each ε and recommend the one that `auto` would choose under the prior `given` (None:
    uniform).

    `prior` "latest" uses `given` instead of an estimated prior, at no cost; "estimate" makes `auto` buy one also if it
    needs none. `spent` is the ε that the batch has spent, `people` what its body of people leaves. `clipping` is the
    clip quantiles and ε_clip: rows are then on the domain between the quantiles of `given`. For two values,
    `two_values` tells what can be learnt if the higher one has the rates `assumed`, or example rates. Slow mechanisms
    are left out of long plans, which `left_out` says. `codes` are those of a model of sums, in place of a message.

    Reads n, k, ε and a public or already private prior; never labels.
    """
    loss_name = str(loss_on(loss, population.domain))
    question = _Question(population, loss_name, n, given, prior, *clipping)
    k = question.domain.k
    slow = k * len(epsilons) <= SLOW_WORK
    left_out = (set() if slow else set(SLOW)) | (set() if k <= LARGEST_K else set(MECHANISMS) - USED)
    rule = INFORMATION if population.domain.nominal else RULE
    rates = rates_of(assumed or [], population.domain.k)
    rest = population.lifetime - spent if people is None else min(population.lifetime - spent, people.room)
    rows, advice, two = [], [], []
    for epsilon in epsilons:
        choice, split = question.choice(epsilon, slow)
        of_epsilon = question.rows(epsilon, choice, split, left_out)
        rows += of_epsilon
        advice.append(_advice(population, epsilon, choice, split, of_epsilon, rest))
        if population.domain.k == 2 and isinstance(choice.channel, RRChannel):
            two.append(worth(choice.channel, n, epsilon, split, rates, population.domain.text(1)))
    source = "uniform, as there is no private or public one yet"
    return {
        "population": population.id,
        "n": n,
        "loss": loss_name,
        "prior": source if given is None else f"carried over from release {given.release}",
        "clip": question.clip_json(),
        "mechanisms": rows,
        "left_out": _said(left_out, k),
        "unused": _unused(rows),
        "recommendations": advice,
        "two_values": {"rates": ASSUMED if assumed else SHOWN, "worth": two} if two else None,
        "model_error_rule": rule,
        "sums_below": None if population.domain.nominal else round(sums_below(n, codes), 4),
        "events": None if population.events is None else population.events.sentence,
        "people": None if people is None else people.as_json(),
    }


@dataclass(frozen=True)
class _Question:
    population: Population
    loss: str
    n: int
    given: GivenPrior | None
    rule: str | None
    clip_quantiles: tuple[str, ...] = ()
    clip_epsilon: Epsilon = ZERO

    @cached_property
    def _whole(self) -> FloatArray:
        return uniform(self.population.domain.k) if self.given is None else self.given.probabilities

    @cached_property
    def _ends(self) -> tuple[int, int]:
        """Return the quantiles' positions under the prior; without quantiles, the domain's ends."""
        last = self.population.domain.k - 1
        return expected_ends(self._whole, self.clip_quantiles) if self.clip_quantiles and last else (0, last)

    @cached_property
    def domain(self) -> Domain:
        return self.population.domain.part(*self._ends)

    @cached_property
    def prior(self) -> FloatArray:
        return clip_prior(self._whole, self._ends)

    def clip_json(self) -> PlanClip | None:
        if not self.clip_quantiles:
            return None
        bought = (self.clip_quantiles, self.clip_epsilon, self.n, self.population.domain)
        return {
            "quantiles": list(self.clip_quantiles),
            "epsilon": str(self.clip_epsilon),
            "domain": self.domain.as_json(),
            "rank_error": rounded_up(rank_error(*bought)),
            "note": far_out(*bought),
        }

    def choice(self, epsilon: Epsilon, slow: bool) -> tuple[Choice, EpsilonSplit]:
        split = split_epsilon(self.request(epsilon, AUTO, {}), self.population, self.n).split
        return choose(self.domain, self.prior, split.randomize, self.loss, self.n, slow=slow), split

    def rows(self, epsilon: Epsilon, choice: Choice, split: EpsilonSplit, left_out: set[str]) -> list[dict[str, Any]]:
        """Return one row per mechanism and options. Reuses the channels that `auto` designed at the same split."""
        channels = {(j.candidate.name, *j.candidate.options): j.channel for j in choice.ranking}
        variants: list[tuple[str, Mapping[str, object]]]
        variants = [(name, {}) for name in MECHANISMS] + [(c.name, c.options) for c in CANDIDATES if c.options]
        rows, two_labels = [], not needs_no_prior(self.domain, self.loss)  # for two labels `auto` designs no other
        for name, options in variants:
            if name in left_out or (two_labels and name in SLOW and (name,) not in channels):
                continue
            try:
                of_row = split_epsilon(self.request(epsilon, name, options), self.population, self.n).split
                channel = channels.get((name, *options)) if of_row == split else None
                if channel is None:
                    design = MECHANISMS[name].design
                    ell = get_loss(self.loss)
                    channel = design(self.domain, self.prior, of_row.randomize, ell, options, self.n)
            except (InvalidMechanism, InvalidEpsilon):
                continue  # not for this domain, such as additive noise on uneven values or on classes, or this ε
            described = describe_channel(channel, self.prior, self.loss)
            row = {"mechanism": name, "options": dict(options), "epsilon": of_row.as_json()}
            row["epsilon_of_channel"] = str(channel.epsilon)
            rows.append({**row, **described, **_worth(channel, self.prior, self.n)})
        return rows

    def request(self, epsilon: Epsilon, mechanism: str, options: Mapping[str, object]) -> ReleaseRequest:
        uses = mechanism == AUTO or MECHANISMS[mechanism].needs_prior(options)
        members: dict[str, Any] = {"epsilon": str(epsilon), "mechanism": mechanism, "loss": self.loss, **options}
        if self.clip_quantiles:
            members |= {"clip_quantile": list(self.clip_quantiles), "clip_epsilon": str(self.clip_epsilon)}
        given_prior = self.given if self.rule == LATEST and uses else None
        if uses and given_prior is None:
            members["prior"] = self.rule  # "latest" without a published prior is "estimate"
        return ReleaseRequest(Release(**members), given_prior)


def _unused(rows: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each row that charges much more for labels than its channel proves."""
    sentences = []
    for row in rows:
        charge, proved = row["epsilon"]["randomize"], row["epsilon_of_channel"]
        if Epsilon.parse(proved).nano < USED_AT_LEAST * Epsilon.parse(charge).nano:
            sentence = f"{row['mechanism']} at ε {row['epsilon']['total']} charges {charge} for every label"
            tight = "; with --tight it uses all of it" if row["mechanism"] == "exponential" else ""
            sentences.append(f"{sentence}, and its channel proves {proved}{tight}.")
    return sentences


def outline(population: Population, epsilons: list[Epsilon], n: int, given: GivenPrior | None) -> dict[Epsilon, float]:
    """Return the expected model error of one-bit with chosen bounds at each ε. It is fast to design, and the best
    mechanism's error is at most as large. A long domain is thinned to OUTLINED values. Empty for domains of names;
    lacks each ε that one-bit does not fit."""
    if population.domain.nominal:
        return {}
    population, given = _outlined(population, given)
    question, name, options = _Question(population, "squared", n, given, None), "one-bit", {"clip": "auto"}
    errors = {}
    for epsilon in epsilons:
        try:
            split = split_epsilon(question.request(epsilon, name, options), population, n).split
            design = MECHANISMS[name].design
            channel = design(question.domain, question.prior, split.randomize, get_loss("squared"), options, n)
        except (InvalidMechanism, InvalidEpsilon):
            continue
        errors[epsilon] = float(model_error(channel, question.prior, n)["expected_model_error"])
    return errors


def _outlined(population: Population, given: GivenPrior | None) -> tuple[Population, GivenPrior | None]:
    """Thin a long domain to the middle labels of OUTLINED equal cells, each with the probability of its cell."""
    domain = population.domain
    if domain.k <= OUTLINED:
        return population, given
    edges = np.linspace(0, domain.k, OUTLINED + 1).astype(np.int64)
    middles = [domain.value(int(place)) for place in (edges[:-1] + edges[1:]) // 2]
    if given is not None:
        given = GivenPrior(np.add.reduceat(given.probabilities, edges[:-1]), given.release)
    return replace(population, domain=Domain.from_values(middles)), given


def _said(left_out: set[str], k: int) -> str | None:
    names = ", ".join(name for name in MECHANISMS if name in left_out)
    return f"Left out, as they take long for {k:,} labels at so many ε: {names}" if names else None


def _advice(
    population: Population,
    epsilon: Epsilon,
    choice: Choice,
    split: EpsilonSplit,
    rows: list[dict[str, Any]],
    rest: Epsilon,
) -> Recommendation:
    allowed = epsilon <= rest
    best = choice.ranking[0].candidate
    row = next((r for r in rows if r["mechanism"] == best.name and r["options"] == best.options), None)
    why = choice.why.removeprefix("chosen by auto: ")
    closest = min(rows, key=lambda r: r["expected_label_loss"], default=None)
    numbers = not population.domain.nominal  # for classes the choice says what they are worth
    if numbers and row is not None and closest is not None and closest is not row and choice.why != WHY_TWO:
        why += (
            f"; {closest['mechanism']} has the smaller label error, but a bias that no number of rows averages away"
            if row["expected_bias_squared"] < closest["expected_bias_squared"]
            else f"; {closest['mechanism']} has the smaller label error, but more is lost in training on it"
        )
    if not numbers and split.prior:
        why += f"; it buys a prior for ε {split.prior} first, and then decides by that one"
    if numbers and row is not None and not row["learns_something"]:
        why += "; with so few rows or so small an ε a model is not expected to do better than a constant"
    if not allowed:
        why += "; the budget does not allow this ε"
    return {
        "epsilon": str(epsilon),
        "epsilon_left": str(rest - epsilon) if allowed else None,
        "mechanism": best.name,
        "options": dict(best.options),
        "epsilon_split": split.as_json(),
        "why": why,
    }


def _worth(channel: Channel, prior: FloatArray, n: int) -> dict[str, float]:
    """Return the worth of n labels through `channel`: a model's error for numbers, noiseless labels for classes."""
    if not channel.domain.nominal:
        return model_error(channel, prior, n)
    share = share_of_information(channel, prior)
    return {"share_of_information": share, "labels_without_noise": n * share}


def describe_channel(channel: Channel, prior: FloatArray, loss: str | Loss) -> JsonObject:
    """Return expected figures of a channel under a private prior (invariant public-domain)."""
    return {
        "outputs": len(channel.outputs),
        "output_values": [float(v) for v in channel.outputs] if channel.m <= LISTED else None,
        "boundaries": [int(b) for b in getattr(channel, "boundaries", [])] if channel.m <= LISTED else None,
        "expected_label_loss": float(channel.expected_loss(prior, loss)),
        "flip_probability": float(channel.flip_probability(prior)),
        "unbiased": bool(channel.unbiased),
    }


# Preview of a message on labels of two values, from n, ε and an assumed rate.
#
# If labels have the higher value at the rate p, randomized response with flip probability q shows it at the rate
# r = q + (1 − 2q)·p. A row has the share (1 − 2q)²·p(1 − p)/(r(1 − r)) of its label's Fisher information about p, and
# the message estimates the overall rate with the standard error √(r(1 − r)/n)/(1 − 2q).
EXAMPLES = ("0.001", "0.01", "0.1", "0.5")  # rates shown if none is assumed
FEWEST = 30  # noiseless labels of the rarer value that a model needs
PRIOR_SHARE = 100  # 1/100 of ε: a prior to show if none is bought
ASSUMED, SHOWN = "assumed by the owner", "examples; nothing is known of the labels"


def rates_of(asked: list[str], k: int) -> tuple[str, ...]:
    """Return the rates to show, as written. Raises InvalidInput (not a rate, or not a domain of two labels)."""
    if asked and k != 2:
        raise InvalidInput("`assume_rate` is a share of one of two values; this domain has another number of them.")
    for text in asked:
        try:
            right = 0 < decimal_of(text) < 1
        except BadSpelling:
            right = False
        if not right:
            raise InvalidInput("`assume_rate` is a number between 0 and 1, such as 0.001.")
    return tuple(asked) or EXAMPLES


def worth(
    channel: RRChannel, n: int, epsilon: Epsilon, split: EpsilonSplit, rates: tuple[str, ...], value: str
) -> PlanWorth:
    """Describe a message of n rows through `channel` at each rate of `value`, the higher label."""
    gap, flip = (channel.A - channel.B) / N, channel.B / N
    rows = [_at(float(decimal_of(rate)), rate, gap, flip, n) for rate in rates]
    prior = split.prior or Epsilon.round_down(epsilon.fraction / PRIOR_SHARE)
    return {
        "epsilon": str(epsilon),
        "value": value,
        "flip_probability": flip,
        "rates": rows,
        "prior_epsilon": str(prior),
        # two noisy counts projected onto the simplex: half their difference
        "prior_standard_error": SENSITIVITY / (float(prior) * n) if prior else None,
        "warnings": [_warning(epsilon, n, value, row) for row in rows if row["too_few"]],
    }


def _at(p: float, rate: str, gap: float, flip: float, n: int) -> PlanRate:
    r = flip + gap * p
    rows = n * gap * gap * p * (1.0 - p) / (r * (1.0 - r))
    rarer = rows * min(p, 1.0 - p)
    return {
        "rate": rate,
        "rows_without_noise": rows,
        "rarer_without_noise": rarer,
        "standard_error": math.sqrt(r * (1.0 - r) / n) / gap if gap > 0 else None,
        "too_few": rarer < FEWEST,
    }


def _warning(epsilon: Epsilon, n: int, value: str, row: PlanRate) -> str:
    share = format((decimal_of(row["rate"]) * 100).normalize(), "f")
    rows, rarer = _count(row["rows_without_noise"]), _count(row["rarer_without_noise"])
    return (
        f"At ε = {epsilon}, {n:,} labels of which {share} % have the value {value} tell as much as {rows} labels "
        f"without noise, {rarer} of them with the rarer value. A model needs about {FEWEST}: take more rows or more ε."
    )


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
