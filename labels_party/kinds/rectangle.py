"""Rectangles: a private interval of every feature that tells examples with large labels from the others.

An example is positive where its label reaches a public threshold. Features become places of public ranges, 2^bits of
each, so that coordinates lie on a public lattice; an example that misses one of its features counts as negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from labels_party.kinds.answer import Computed
from labels_party.kinds.feature_schema import Number, Schema
from labels_party.kinds.own_features import FeatureKind, Planned, check_paid, examples, parse_total
from labels_party.kinds.prediction.methods import threshold_position
from labels_party.ledger.populations import Population
from labels_party.mechanisms.private_median.rectangles import RectanglePlan, private_rectangle
from labels_party.work.kind import Job
from shared.costs.sessions import BASE, rho_texts
from shared.costs.slices import Cost, SliceNoise
from shared.documents.answer import AnswerMechanism
from shared.documents.kinds.rectangle import METHODS, RECTANGLE, rectangle_cost
from shared.domain import Domain
from shared.errors import InvalidInput
from shared.maps.places import MISSING, number_text, place_text
from shared.privacy import ATTO, Epsilon, delta_string
from shared.schemas.rectangle import Rectangle

RANKS, SLICES = METHODS
MOST_BITS, DEFAULT_BITS = 32, 16
MOST_FEATURES = 16
SOURCES = {
    SLICES: "Cohen, Lyu, Nelson, Sarlós & Stemmer 2023, Reorder-Slice-Compute: interval points by recursion",
    RANKS: "Cohen, Lyu, Nelson, Sarlós & Stemmer 2023, Reorder-Slice-Compute: interval points by the exponential "
    "mechanism",
}


@dataclass(frozen=True)
class RectangleWish:
    """What is asked for, checked; all of it public."""

    epsilon: Epsilon
    delta_atto: int
    threshold: str
    schema: Schema
    bits: int
    method: str
    slice: int | None
    additional_release: bool

    @classmethod
    def parse(
        cls,
        *,
        epsilon: str | int | float,
        threshold: str | int | float,
        features: list[dict[str, Any]],
        delta: str | int | float = "0",
        bits: int = DEFAULT_BITS,
        method: str = RANKS,
        slice: int | None = None,
        additional_release: bool = False,
    ) -> RectangleWish:
        """`slice`: how many positive examples a side is looked for among; None: as few as n, ε and δ need.

        Raises InvalidEpsilon, InvalidInput.
        """
        asked, atto = parse_total(epsilon, delta, RECTANGLE)
        if method not in METHODS:
            raise InvalidInput(f"The method of a rectangle is {RANKS} or {SLICES}.")
        if not 1 <= bits <= MOST_BITS:
            raise InvalidInput(f"The range of a feature is divided into 2^bits places, with 1 to {MOST_BITS} bits.")
        if slice is not None and slice < 1:
            raise InvalidInput("A slice has at least one example.")
        schema = Schema.from_json(features, (1 << bits) - 1)
        if len(schema.features) > MOST_FEATURES or not all(isinstance(f, Number) for f in schema.features):
            raise InvalidInput(f"A rectangle has 1 to {MOST_FEATURES} features, all of them numbers with a range.")
        return cls(asked, atto, str(threshold), schema, bits, method, slice, additional_release)

    def plan(self, domain: Domain, n: int) -> Planned:
        """Raises InvalidInput (too few examples, a threshold that tells nothing), InvalidEpsilon."""
        threshold_position(domain, self.threshold)
        total = Cost(self.epsilon.fraction, Fraction(self.delta_atto, ATTO))
        axes = len(self.schema.features)
        found = RectanglePlan.within(
            total, n=n, axes=axes, bits=self.bits, slice=self.slice, base=_base(self.method, self.bits)
        )
        if found.interval.recursive:
            threshold, most = found.interval.prefix(found.slice)
            if most < threshold:
                raise InvalidInput(
                    f"A side by slices at this ε and δ needs a prefix that {threshold} examples have, and looks for it "
                    f"among {most} of a slice's {found.slice}: it would find none. Take larger slices, a larger ε or "
                    "δ, or ranks, which need fewer."
                )
        parameters = {
            "threshold": number_text(float(self.threshold)),
            "features": self.schema.as_json(),
            "examples": n,
            "levels": self.schema.levels,
            "method": self.method,
            "slice": found.slice,
            "slice_noise": 0 if found.noise is None else found.noise.mean,
            "epsilon_per_side": str(Epsilon.round_up(found.epsilon)),
            "delta_per_side": delta_string(int(found.delta * ATTO)),
            "delta_of_bound": delta_string(int(found.slack * ATTO)),
            "bound": found.session.rule,
            "rho": rho_texts(found.session.rho),
        }
        return Planned(rectangle_cost(parameters).split(), parameters, _facts(found))


def _base(method: str, bits: int) -> int:
    """By ranks no domain is too large for the exponential mechanism."""
    return max(BASE, 1 << bits) if method == RANKS else BASE


def _facts(plan: RectanglePlan) -> dict[str, str | int | bool | None]:
    return {"positives_sliced_off": plan.taken}


class RectangleKind(FeatureKind[Rectangle, RectangleWish]):
    """One pass over the sealed labels and the features, paid by ε_randomize and δ of the answer."""

    name = RECTANGLE
    path = "rectangles"
    schema = Rectangle

    def wish(self, _population: Population, body: Rectangle) -> RectangleWish:
        return RectangleWish.parse(**body.model_dump())

    def compute(self, job: Job) -> Computed:
        """Raises Unavailable, RandomnessUnavailable."""
        given, domain = job.work.plan, job.population.domain
        schema = Schema.from_json(given["features"], given["levels"])
        bits = (given["levels"] + 1).bit_length() - 1
        plan = RectanglePlan(
            given["examples"],
            len(schema.features),
            bits,
            given["slice"],
            Epsilon.parse(given["epsilon_per_side"]).fraction,
            Fraction(given["delta_per_side"]),
            SliceNoise(given["slice_noise"]) if given["slice_noise"] else None,
            Fraction(given["delta_of_bound"]),
            _base(given["method"], bits),
        )
        check_paid(rectangle_cost(given), job)
        codes, positions = examples(self.features, job, schema)
        whole = np.all(codes != MISSING, axis=1)
        positive = whole & (positions >= threshold_position(domain, given["threshold"]))
        found = private_rectangle(np.maximum(codes, 0), positive, plan)
        ends = list(zip(found.low, found.high, strict=True))
        sides = []
        for feature, (first, last) in zip(given["features"], ends, strict=True):
            low, high = feature["range"]
            numbers = [None if end is None else place_text(end, low, high, schema.levels) for end in (first, last)]
            side = {"name": feature["name"], "first": first, "last": last}
            sides.append(side | dict(zip(("from", "to"), numbers, strict=True)))
        complete = all(end is not None for pair in ends for end in pair)
        name, source = f"rectangle by {given['method']}", SOURCES[given["method"]]
        mechanism = AnswerMechanism(name=name, source=source, facts=_facts(plan))
        return Computed({"found": complete, "sides": sides}, mechanism, self.adjacency)
