"""A weighted sum of models around the mean of the labels: what validation on unbiased labels lets one combine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training.additive import Additive
from features_party.training.encoding import Encoded, FeatureSchema, Float32
from features_party.training.gaussian import Gaussian
from features_party.training.gbdt import TreeInput, Trees, importance

FloatArray = npt.NDArray[np.float64]


BODIES: dict[str, type[Additive] | type[Gaussian] | type[Trees]] = {
    "additive": Additive,
    "gaussian": Gaussian,
    "trees": Trees,
}


@dataclass(frozen=True)
class Member:
    """`weight` of a model in the sum. Trees with a `base` add to the score of that member instead of a constant."""

    name: str
    weight: float
    body: Additive | Gaussian | Trees
    base: int | None = None


@dataclass(frozen=True)
class Ensemble:
    """mean + Σ weight·(prediction − mean), each prediction clipped to `bounds` first; weights are at least 0 and need
    not sum to 1, so that the sum shrinks to the mean where the labels say little."""

    mean: float
    bounds: tuple[float, float]
    members: tuple[Member, ...]

    def predict(self, encoded: Encoded, effects: Float32, sizes: list[int], threads: int = 1) -> FloatArray:
        """float64[n]. `sizes[c]`: values of category c, missing included."""
        found = np.full(len(encoded), self.mean)
        scores = [m.body.score(encoded, effects) if isinstance(m.body, Additive) else None for m in self.members]
        seen = None
        for member, score in zip(self.members, scores, strict=True):
            if member.weight == 0.0:
                continue
            if isinstance(member.body, Additive):
                assert score is not None
                predictions = score if member.body.link is None else member.body.link.predictions(score)
            elif isinstance(member.body, Gaussian):
                predictions = member.body.predict(encoded, effects)
            else:
                seen = TreeInput.of(encoded, effects, sizes) if seen is None else seen
                base = None if member.base is None else self.base_score(member, scores[member.base])
                predictions = member.body.predict(seen, threads, base)
            found += member.weight * (np.clip(predictions, *self.bounds) - self.mean)
        return found

    def base_score(self, member: Member, score: FloatArray | None) -> FloatArray:
        """What the trees of `member` start from, given the score of its base."""
        assert member.base is not None
        assert score is not None
        base = self.members[member.base].body
        assert isinstance(base, Additive)
        return starting_score(base, score, isinstance(member.body, Trees) and member.body.link is not None, self.bounds)

    def importance(self, schema: FeatureSchema) -> dict[str, float]:
        """Share by feature, largest first, the members' own by their weights; trees on top count half their base."""
        total: dict[str, float] = {}
        own = [
            importance(m.body, schema) if isinstance(m.body, Trees) else m.body.importance(schema) for m in self.members
        ]
        for at, member in enumerate(self.members):
            parts = [(own[at], 1.0)] if member.base is None else [(own[at], 0.5), (own[member.base], 0.5)]
            for shares, part in parts:
                for name, share in shares.items():
                    total[name] = total.get(name, 0.0) + member.weight * part * share
        whole = sum(total.values()) or 1.0
        return dict(sorted(((n, s / whole) for n, s in total.items() if s > 0.0), key=lambda item: -item[1]))

    def as_json(self) -> dict[str, Any]:
        return {
            "mean": self.mean,
            "bounds": list(self.bounds),
            "members": [
                {
                    "name": m.name,
                    "weight": m.weight,
                    "kind": next(kind for kind, body in BODIES.items() if isinstance(m.body, body)),
                    "base": m.base,
                    "body": m.body.as_json(),
                }
                for m in self.members
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Ensemble:
        """Inverse of `as_json`; raises KeyError, TypeError or ValueError for what is not one, InvalidFile for trees."""
        members: list[Member] = []
        for one in data["members"]:
            base = one["base"]
            if base is not None and not (0 <= base < len(members) and isinstance(members[base].body, Additive)):
                raise ValueError("a member has no base")
            body = BODIES[one["kind"]].from_json(one["body"])
            members.append(Member(str(one["name"]), float(one["weight"]), body, base))
        low, high = (float(end) for end in data["bounds"])
        return cls(float(data["mean"]), (low, high), tuple(members))


def starting_score(base: Additive, score: FloatArray, log: bool, bounds: tuple[float, float]) -> FloatArray:
    """The score of trees on top of an additive model: its prediction, or the log of it for trees with a log link."""
    if log:
        assert base.link is not None
        return np.asarray(np.clip(score, base.link.low, base.link.high), np.float64)
    return np.clip(score if base.link is None else base.link.predictions(score), *bounds)
