"""A calibration among the signed answers: a private monotone map from a model's score to the label.

It is what a labels party answers with when it is sent scores of the examples of a batch; the scores stay out of the
document. `parameters`: loss, shape and its options, and how scores are numbered; `result`: the map.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.errors import MalformedAnswer
from shared.message.answer import Answer, read_answer, register, trusted_answer
from shared.message.signing import VerifyingKey
from shared.monotone import MonotoneMap
from shared.scores import ScoreGrid

CALIBRATION = "calibration"
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ScoreMap:
    """f(score) = map(number of the score): never falls, and stays within the label domain.

    With `interpolate` the steps become straight lines, which is post-processing: a cut between two values lies where
    the fit crosses the middle of them, so the line goes through the middles at the cuts; outside of the outer cuts it
    is constant, halfway from there to the outer value.
    """

    grid: ScoreGrid
    map: MonotoneMap
    interpolate: bool = False

    def apply(self, scores: FloatArray) -> FloatArray:
        """float64[n] of finite scores float64[n]. Raises InvalidInput."""
        numbers: Any = self.grid.index(scores)  # the kinds of whole numbers differ in name alone
        values = self.map.values
        if not self.interpolate or values.size == 1:
            return self.map.apply(numbers)
        cuts = np.array([self.grid.score(int(b)) for b in self.map.breakpoints])
        middles = values[:-1] + np.diff(values) / 2
        inside = np.interp(scores, cuts, middles)
        ends = values[0] + (middles[0] - values[0]) / 2, middles[-1] + (values[-1] - middles[-1]) / 2
        return np.where(scores < cuts[0], ends[0], np.where(scores >= cuts[-1], ends[1], inside))

    def as_json(self) -> dict[str, Any]:
        return {"scores": str(self.grid), "map": self.map.as_json()} | (
            {"interpolate": True} if self.interpolate else {}
        )

    @classmethod
    def from_json(cls, data: Any) -> ScoreMap:
        """Inverse of `as_json`. Raises InvalidInput, KeyError or TypeError."""
        grid, found = ScoreGrid.parse(data["scores"]), MonotoneMap.from_json(data["map"])
        if found.x_size != grid.size:
            raise MalformedAnswer("The map is over another domain than that of the scores' numbers.")
        return cls(grid, found, data.get("interpolate") is True)


@dataclass(frozen=True)
class Calibration:
    """A verified answer of this kind; `digest` is the SHA-256 of its payload, `envelope` what was signed."""

    answer: Answer
    digest: str
    envelope: bytes
    interpolate: bool = False

    @property
    def map(self) -> ScoreMap:
        return replace(score_map(self.answer), interpolate=self.interpolate)

    def interpolated(self, wanted: bool) -> Calibration:
        """The same, applied by straight lines (`ScoreMap`) if so wanted."""
        return replace(self, interpolate=wanted)

    @property
    def loss(self) -> str:
        return str(self.answer.parameters["loss"])

    @property
    def shape(self) -> str:
        return str(self.answer.parameters["shape"])


def score_map(answer: Answer) -> ScoreMap:
    return ScoreMap.from_json({"scores": answer.parameters["scores"], "map": answer.result["map"]})


def _check(answer: Answer) -> None:
    parameters, result = answer.parameters, answer.result
    if set(parameters) != {"loss", "shape", "options", "scores"} or set(result) != {"map"}:
        raise MalformedAnswer("a calibration has the parameters loss, shape, options and scores, and one map.")
    if not all(isinstance(parameters[name], str) for name in ("loss", "shape", "scores")):
        raise MalformedAnswer("loss, shape and scores of a calibration are texts.")
    if not isinstance(parameters["options"], dict):
        raise MalformedAnswer("the options of a calibration's shape are an object.")
    values, domain = score_map(answer).map.values, answer.read_domain().values
    if values[0] < domain[0] or values[-1] > domain[-1]:
        raise MalformedAnswer("a value of the map lies outside the label domain.")


register(CALIBRATION, _check)


def open_calibration(envelope: bytes, key: VerifyingKey, audience: str | None) -> Calibration:
    """A calibration from its envelope. Raises the VerificationFailed of the rule that was broken."""
    answer, digest = trusted_answer(envelope, key, audience, CALIBRATION)
    return Calibration(answer, digest, envelope)


def load_calibration(path: Path, key: VerifyingKey, audience: str | None) -> Calibration:
    """As `open_calibration`, of a file. Raises InvalidFile too."""
    return open_calibration(read_answer(path), key, audience)
