"""Answers at length: how often each is drawn, and what audits of them prove.

Each part shares its seconds among its cases: frequencies by χ² at α = 10⁻⁶ for all of them together, the bounds of an
auditor wrong with probability 10⁻⁶ for all of them together. Every case of frequencies has a control at another ε.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from label_dp.companions.costs.slices import SliceNoise
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.audit_bounds import audit, power
from labels_party.companions.kinds.prediction.methods import METHODS
from labels_party.companions.mechanisms.isotonic.total_order import isotonic
from labels_party.companions.mechanisms.private_median.median import MedianPlan, private_median
from labels_party.companions.mechanisms.private_median.rsc import geometric
from labels_party.companions.mechanisms.private_prediction import votes, walk
from labels_party.companions.mechanisms.private_prediction.lattice import laplace_noise, noisy
from labels_party.mechanisms.entropy import Keystream
from labels_party.mechanisms.quantiles import EACH, histogram_quantiles, plan_quantiles
from tests.privacy_audit import test_binned_epsilon, test_median_cells_epsilon, test_prediction_epsilon
from tests.privacy_audit import test_own_features_epsilon as own
from tests.privacy_audit.test_median_epsilon import ONE, OTHER
from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.statistical import test_isotonic_draws, test_quantile_frequencies, test_shape_draws
from tests.statistical.test_sampler_frequencies import ALPHA, p_value
from tests.support.asked import median_wish
from tests.support.calibrations import charged
from tests.support.isotonic import every_run
from tests.support.labels import LabelsParty
from tests.support.predicting import FEATURES, ask, fresh_name, made, payload, plan_of, with_features

Symbols = Callable[[int], list[Any]]  # so many of them
WRONG = 3_000  # draws of a control
CONTROL = 160  # answers of the service to either side of a control


# --- how often -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """`draw` at an ε; the `law` at `epsilon`, exact or to within floats. The control is drawn at `other`."""

    epsilon: str
    draw: Callable[[str], Hashable]
    law: Callable[[], dict[Hashable, float]]
    other: str


def by_runs(epsilon: str, fit: Callable[[Epsilon], Hashable], other: str) -> Case:
    """The law is that of all runs, by their integer weights."""

    def law() -> dict[Hashable, float]:
        found: Counter[Hashable] = Counter()
        for _, chance, outcome in every_run(lambda: fit(Epsilon.parse(epsilon))):
            found[outcome] += chance  # type: ignore[assignment]  # exact, not whole
        return {outcome: float(chance) for outcome, chance in found.items()}

    return Case(epsilon, lambda asked: fit(Epsilon.parse(asked)), law, other)


def of_two(epsilon: str, draw: Callable[[Fraction], int], halves: int, other: str) -> Case:
    """0 or 1, the odds of 1 being e^(ε·halves/2)."""
    one = 1 / (1 + np.exp(-float(epsilon) * halves / 2))
    return Case(epsilon, lambda asked: draw(Fraction(asked)), lambda: {0: 1 - one, 1: one}, other)


def maps(loss: str) -> Callable[[Epsilon], Hashable]:
    quick = test_isotonic_draws
    return lambda epsilon: isotonic(quick.X, quick.Y, quick.DOMAIN, 9, epsilon, loss, levels=2)


def rank(epsilon: str) -> int:
    return histogram_quantiles(test_quantile_frequencies.COUNTS, test_quantile_frequencies.plan("0.5", epsilon))[0]


def ranks() -> dict[Hashable, float]:
    return dict(enumerate(test_quantile_frequencies.closed_form(0.5, 0.1).tolist()))


def at_the_prediction(epsilon: str) -> int:
    """Between ends that clip it."""
    return noisy(3, 1, Fraction(epsilon), (0, 10), laplace_noise)


def clipped_laplace(epsilon: float = 0.5) -> dict[Hashable, float]:
    alpha, law = np.exp(-epsilon), dict[Hashable, float]()
    for t in range(-400, 401):
        at = min(max(3 + t, 0), 10)
        law[at] = law.get(at, 0.0) + (1 - alpha) / (1 + alpha) * alpha ** abs(t)
    return law


def sizes() -> dict[Hashable, float]:
    alpha = float(SliceNoise(4).alpha)
    return {j: alpha**j * (1 - alpha if j < 12 else 1) for j in range(13)}


CASES: dict[str, Case] = {
    "map of total order": by_runs("1", maps("squared"), "3"),
    "map, absolute loss": by_runs("6", maps("absolute"), "9"),
    **{f"map, {name}": by_runs("3", fit, "9") for name, fit in test_shape_draws.FITS.items()},
    "soft majority": of_two("0.5", lambda e: votes.soft_majority(6, 9, e, Keystream()), 3, "0.75"),
    "walk": of_two("0.5", lambda e: walk.answer(-4, 4, e, Keystream()), -4, "0.75"),
    "quantile": Case("0.2", rank, ranks, "0.3"),
    "noise of a prediction": Case("0.5", at_the_prediction, clipped_laplace, "0.75"),
    "size of a slice": Case("4", lambda mean: geometric(SliceNoise(int(mean)), 12, Keystream()), sizes, "5"),
}


def test_frequencies_of_answers(scale: Scale, report: Report) -> None:
    share, alpha = scale.seconds / len(CASES), ALPHA / len(CASES)
    tried, fine, seen, least, fewest = 0, 0, 0, 1.0, 1 << 60
    for case in CASES.values():
        law, end = case.law(), time.monotonic() + share
        drawn, wrong = Counter[Hashable](), Counter(case.draw(case.other) for _ in range(WRONG))
        while time.monotonic() < end or drawn.total() < WRONG:
            drawn[case.draw(case.epsilon)] += 1
        p, other = (chance(found, law) for found in (drawn, wrong))
        tried, fine, seen = tried + 1, fine + (p > alpha), seen + (other < alpha)
        least, fewest = min(least, p), min(fewest, drawn.total())
    limit = f"χ² at α = {alpha:.1e} each, smallest p {least:.2g}; {fewest:,} draws or more of each; "
    report.row(tried, fine, f"{limit}{seen} of {tried} at another ε found by {WRONG:,}")
    assert (fine, seen) == (tried, tried)


def chance(drawn: Counter[Hashable], law: dict[Hashable, float]) -> float:
    assert set(drawn) <= set(law), "something was drawn that cannot be"
    return p_value(np.array([drawn[outcome] for outcome in law]), np.array(list(law.values())))


# --- what audits prove ---------------------------------------------------------------------------------------


def by_method(name: str) -> tuple[Symbols, Symbols]:
    """Of the labels of a tiny batch, and the neighbours, that move what is computed the most."""
    quick, run = test_prediction_epsilon, METHODS[name]
    plan = plan_of(name, quick.N, epsilon="1", **quick.CASES[name])
    codes = plan.features.features[0].codes(quick.X, plan.features.levels)[:, None]  # type: ignore[union-attr]  # a number
    part, query = np.arange(quick.N) % (plan.parts or 1), np.array(plan.features.query({"x": 2.0}), np.int64)

    def fact(y: tuple[int, ...]) -> int:
        return run.evaluate(plan, quick.DOMAIN, run.learn(plan, quick.DOMAIN, codes, np.array(y), part), query)

    facts = {y: fact(y) for y in itertools.product((0, 1), repeat=quick.N)}
    pairs = [(y, (*y[:i], 1, *y[i + 1 :])) for y in facts for i in range(quick.N) if y[i] == 0]
    ends = max(([facts[y], facts[z]] for y, z in pairs), key=lambda found: abs(found[0] - found[1]))
    cuts = sorted([*ends, sum(ends) // 2])
    one, other = (lambda n, at=at: [bisected(cuts, run.draw(plan, at)) for _ in range(n)] for at in ends)
    return one, other


def bisected(cuts: list[int], value: int) -> int:
    return int(np.searchsorted(cuts, value, side="right"))


def by_ranks(labels: list[int]) -> Symbols:
    counts, plan = np.bincount(labels, minlength=8), plan_quantiles(["0.5"], Epsilon.parse("1"), 9, 8, method=EACH)
    return lambda n: [histogram_quantiles(counts, plan)[0] for _ in range(n)]


def by_slices(labels: list[int]) -> Symbols:
    points, plan = np.array(labels, np.uint64), MedianPlan(9, 8, Fraction(1))
    return lambda n: [private_median(points, plan) for _ in range(n)]


def by_total_order(labels: list[int]) -> Symbols:
    x, y, domain = np.array([1, 4, 7]), np.array(labels), Domain.parse("0:2")
    return lambda n: [isotonic(x, y, domain, 9, Epsilon.parse("1"), levels=2) for _ in range(n)]


def of_features(draw: Any, pair: Any) -> tuple[Symbols, Symbols]:
    one, other = (lambda _n, data=data: list(draw(data, 1)) for data in pair)
    return one, other


def by_maps(maps: Callable[[], list[Any]]) -> Symbols:
    return lambda n: list(itertools.islice(itertools.chain.from_iterable(iter(maps, None)), n))


def by_bins(labels: list[int]) -> Symbols:
    return by_maps(lambda: test_binned_epsilon.maps(labels))


def by_medians(labels: list[int]) -> Symbols:
    return by_maps(lambda: test_median_cells_epsilon.maps(labels, "1", Keystream()))


AUDITS: dict[str, Callable[[], tuple[Symbols, Symbols]]] = {
    "median by ranks": lambda: (by_ranks(ONE), by_ranks(OTHER)),
    "median by slices": lambda: (by_slices(ONE), by_slices(OTHER)),
    "map by total order": lambda: (by_total_order([0, 0, 2]), by_total_order([2, 0, 2])),
    "map by bins": lambda: (by_bins([0, 0, 4, 4]), by_bins([4, 0, 4, 4])),
    "map by medians": lambda: (
        by_medians(test_median_cells_epsilon.LABELS),
        by_medians(test_median_cells_epsilon.NEIGHBOUR),
    ),
    **{name: (lambda name=name: by_method(name)) for name in METHODS},  # type: ignore[misc]  # mypy cannot infer a lambda with a default
}
AUDITS["rectangle"] = lambda: of_features(own.rectangles, own.RECTANGLES)
AUDITS["linear model"] = lambda: of_features(own.models, own.MODELS)
AT_ONCE = {  # drawn together
    "map by bins": test_binned_epsilon.MAPS,
    "map by medians": test_median_cells_epsilon.MAPS,
    "rectangle": own.RUNS,
    "linear model": own.RUNS,
}


def audited(one: Symbols, other: Symbols, seconds: float, at_once: int, alpha: float) -> tuple[float, float, int]:
    """(ε that is proved at least, ε that so many could prove, how many of each)."""
    end, found = time.monotonic() + seconds, ([], [])
    while time.monotonic() < end:
        for symbols, draw in zip(found, (one, other), strict=True):
            symbols += draw(at_once)
    return audit(*found, alpha), power(1.0, len(found[0]), alpha), len(found[0])


def test_audits_of_answers(scale: Scale, report: Report) -> None:
    """Every answer at ε = 1, by its mechanism."""
    alpha = ALPHA / len(AUDITS)
    proved, tried = dict[str, float](), 0
    for name, sides in AUDITS.items():
        proved[name], _, n = audited(*sides(), scale.seconds / len(AUDITS), AT_ONCE.get(name, 100), alpha)
        tried += 2 * n
    told = ", ".join(f"{name} {bound:.2f}" for name, bound in proved.items())
    whole = max(proved.values()) <= 1
    report.row(tried, tried * whole, f"ε at least, of 1 charged (error {ALPHA:.0e}): {told}")
    assert whole
    assert max(proved.values()) > 0.5, "the auditor has no power"


def asked_of_service(party: LabelsParty, what: str, labels: list[int], epsilon: str = "1") -> Symbols:
    """Answers of that ε each, over and over, from one batch."""
    ids = [f"c-{i:02d}" for i in range(len(labels))]
    table = pa.table({"example_id": ids, "label": [float(y) for y in labels]})
    features = pa.table({"example_id": ids, "x": np.linspace(0, 2, len(ids))})
    rules = {"population": (name := fresh_name()), "label": name, "domain": "0:7", "lifetime": "1000000"}
    batch, s = with_features(party, table, features, **rules), party.services
    steps = itertools.count()
    if what == "prediction":
        more = {"threshold": 4, "features": FEATURES[:1]}
        predictor = made(party, batch, "walk", epsilon, "900000", **more)
        return lambda n: [
            payload(ask(party, predictor, {"x": 3 + next(steps) * 1e-6}).envelope)["result"]["value"] for _ in range(n)
        ]
    scores = pa.table({"example_id": ids, "score": np.linspace(0, 1, len(ids))})

    def one() -> str:
        if what == "median":
            wish = median_wish(epsilon=epsilon, additional_release=True)
            answer = s.work.ask(s.work.queued("median"), batch, wish, "test")[1]["id"]
        else:
            answer = charged(
                party, batch, scores, epsilon, additional_release=True, scores="0:1:1", options={"cells": 2}
            )
        assert s.pipeline.run(answer)
        result = payload(s.work.envelope(answer))["result"]
        return str(result["median"] if what == "median" else [round(float(v)) for v in result["map"]["values"]])

    return lambda n: [one() for _ in range(n)]


def test_audits_through_the_service(scale: Scale, report: Report, tmp_path: Path) -> None:
    """Answers asked for, charged, computed, signed and read, of two batches that differ in one label. The control's
    predictions are drawn at an ε of 16."""
    asked, proved, tried = ("median", "calibration", "prediction"), dict[str, str](), 0
    bounds, alpha = list[float](), ALPHA / len(asked)
    with LabelsParty(tmp_path / "one", worker=False) as one, LabelsParty(tmp_path / "two", worker=False) as two:
        for what in asked:
            sides = asked_of_service(one, what, ONE), asked_of_service(two, what, OTHER)
            bound, most, n = audited(*sides, scale.seconds / len(asked), 20, alpha)
            bounds.append(bound)
            proved[what], tried = f"{bound:.2f} of 1 ({most:.2f} provable)", tried + 2 * n
        leaks = [asked_of_service(party, "prediction", y, "16")(CONTROL) for party, y in ((one, ONE), (two, OTHER))]
    control = audit(*leaks, alpha)
    told = ", ".join(f"{what} {bound}" for what, bound in proved.items())
    limit = f"ε at least (error {ALPHA:.0e}): {told}; {control:.2f} by {CONTROL} predictions at 16 times the ε"
    report.row(tried, tried * (max(bounds) <= 1), limit)
    assert max(bounds) <= 1 < control
