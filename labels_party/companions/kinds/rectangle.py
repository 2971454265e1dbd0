"""Rectangles: a private interval of every feature that separates examples with large labels from the others.

An example is positive if its label reaches a public threshold. Features become places of public ranges, 2^bits of each,
so that coordinates lie on a public lattice; an example with a missing feature counts as negative.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from label_dp.companions.costs.sessions import BASE
from label_dp.companions.kinds.rectangle import METHODS, RECTANGLE, Rectangle, RectangleFacts, rectangle_cost
from label_dp.companions.maps.places import MISSING, number_text, place_text
from label_dp.domain import Domain
from label_dp.errors import InvalidInput
from label_dp.privacy import ATTO, Epsilon, delta_string
from labels_party.companions.kinds.answer import Computed
from labels_party.companions.kinds.feature_schema import Schema
from labels_party.companions.kinds.own_features import FeatureKind, Planned, Wish, check_paid, examples, noise_of
from labels_party.companions.kinds.prediction.methods import threshold_position
from labels_party.companions.mechanisms.private_median.rectangles import RectanglePlan, private_rectangle
from labels_party.work.kind import Job

RANKS, SLICES = METHODS
SOURCES = {
    SLICES: "Cohen, Lyu, Nelson, Sarlós & Stemmer 2023, Reorder-Slice-Compute: interval points by recursion",
    RANKS: "Cohen, Lyu, Nelson, Sarlós & Stemmer 2023, Reorder-Slice-Compute: interval points by the exponential "
    "mechanism",
}


def _base(method: str, bits: int) -> int:
    """Return the recursion's base; by ranks no domain is too large for the exponential mechanism."""
    return max(BASE, 1 << bits) if method == RANKS else BASE


def _facts(plan: RectanglePlan) -> RectangleFacts:
    return RectangleFacts(positives_sliced_off=plan.taken)


class RectangleKind(FeatureKind[Rectangle]):
    """Kind with one pass over the sealed labels and the features, paid by ε_randomize and δ of the answer."""

    name = RECTANGLE
    schema = Rectangle

    @classmethod
    def levels(cls, asked: Rectangle) -> int:
        return (1 << asked.bits) - 1

    @classmethod
    def planned(cls, wish: Wish[Rectangle], domain: Domain, n: int) -> Planned:
        """Plan the rectangle. Raises InvalidInput (too few examples, a threshold that all or no labels reach),
        InvalidEpsilon."""
        rectangle, threshold = wish.asked, str(wish.asked.threshold)
        threshold_position(domain, threshold)
        base, axes = _base(rectangle.method, rectangle.bits), len(wish.schema.features)
        rectangle_plan = RectanglePlan.within(
            wish.cost, n=n, axes=axes, bits=rectangle.bits, slice=rectangle.slice, base=base
        )
        if rectangle_plan.interval.recursive:
            least, most = rectangle_plan.interval.prefix(rectangle_plan.slice)
            if most < least:
                raise InvalidInput(
                    f"A side by slices at this ε and δ needs a prefix that {least} examples have, and looks for it "
                    f"among {most} of a slice's {rectangle_plan.slice}: it would find none. Take larger slices, a "
                    "larger ε or δ, or ranks, which need fewer."
                )
        parameters = wish.session(n, rectangle_plan.session, rectangle_plan.noise, rectangle_plan.slack) | {
            "threshold": number_text(float(threshold)),
            "method": rectangle.method,
            "slice": rectangle_plan.slice,
            "epsilon_per_side": str(Epsilon.round_up(rectangle_plan.epsilon)),
            "delta_per_side": delta_string(int(rectangle_plan.delta * ATTO)),
        }
        return Planned(rectangle_cost(parameters).split(), parameters, _facts(rectangle_plan))

    def compute(self, job: Job) -> Computed:
        """Learn the rectangle. Raises Unavailable, RandomnessUnavailable."""
        parameters, domain = job.work.plan, job.population.domain
        schema = Schema.from_json(parameters["features"], parameters["levels"])
        bits = (parameters["levels"] + 1).bit_length() - 1
        plan = RectanglePlan(
            parameters["examples"],
            len(schema.features),
            bits,
            parameters["slice"],
            Epsilon.parse(parameters["epsilon_per_side"]).fraction,
            Fraction(parameters["delta_per_side"]),
            *noise_of(parameters),
            _base(parameters["method"], bits),
        )
        check_paid(rectangle_cost(parameters), job)
        codes, positions = examples(self.features, job, schema)
        whole = np.all(codes != MISSING, axis=1)
        positive = whole & (positions >= threshold_position(domain, parameters["threshold"]))
        rectangle = private_rectangle(np.maximum(codes, 0), positive, plan)
        ends = list(zip(rectangle.low, rectangle.high, strict=True))
        sides = []
        for feature, (first, last) in zip(parameters["features"], ends, strict=True):
            low, high = feature["range"]
            numbers = [None if end is None else place_text(end, low, high, schema.levels) for end in (first, last)]
            side = {"name": feature["name"], "first": first, "last": last}
            sides.append(side | dict(zip(("from", "to"), numbers, strict=True)))
        complete = all(end is not None for pair in ends for end in pair)
        name, source = f"rectangle by {parameters['method']}", SOURCES[parameters["method"]]
        return Computed({"found": complete, "sides": sides}, name, source, _facts(plan), self.adjacency)


KIND = RectangleKind
