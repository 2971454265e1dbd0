"""A calibration among the signed answers: a private monotone map from a model's score, or two scores, to the label.

It is a labels party's answer to scores of the examples of a batch; the scores stay out of the document. `parameters`:
loss, shape and its options, and how scores are numbered; `result`: the map. If `scores_2` says how a second score is
numbered (`grid`, or `bins`), it has two; a reader that supports one score only refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from label_dp.companions.costs.charge import check_charge
from label_dp.companions.costs.slices import Cost
from label_dp.companions.maps.shapes import FORMS, LOSSES, most_pieces
from label_dp.documents.kind import REPLACE_ONE, Facts, Kind
from label_dp.documents.members import Strict
from label_dp.errors import InvalidInput, MalformedAnswer
from label_dp.schemas.calibration import Calibration as Asked

if TYPE_CHECKING:
    from label_dp.companions.maps.score_maps import FloatArray, PairMap, ScoreMap
    from label_dp.companions.maps.scores import ScoreGrid
    from label_dp.documents.answer import Answer
    from label_dp.documents.signing import VerifyingKey

CALIBRATION = "calibration"


class CalibrationParameters(Strict):
    """Parameters; `scores`, `scores_2` say how either score is numbered; the latter null if there is one score."""

    loss: str
    shape: str
    options: dict[str, Any]
    scores: str
    scores_2: str | None


class CalibrationResult(Strict):
    """Result: the map from scores to labels."""

    map: dict[str, Any]


class MonotoneFacts(Facts):
    """Facts of a monotone map: `levels` halvings, with cuts at the uploaded scores."""

    algorithm: Literal["1"]
    levels: int
    cuts: Literal["points"]


class BinsFacts(Facts):
    """Facts of bins: cells along each score. The excess of the map's loss follows from the number of scores in each
    cell."""

    algorithm: Literal["noisy sums of cells"]
    cells: str


class MediansFacts(Facts):
    """Facts of medians: cells along each score, and a bound on the rank error.

    By at most so many labels the median of any cell misses half of its labels, before medians are made to rise, 19
    times in 20.
    """

    algorithm: Literal["medians of cells"]
    cells: str
    rank_error: str


class PiecesFacts(Facts):
    """Facts of pieces: the number of values and of cells they are chosen from."""

    algorithm: Literal["appendix C"]
    values: int
    cells: int


class KnotsFacts(Facts):
    """Facts of knots: the number of values, of knots, and of steps of slope."""

    algorithm: Literal["appendix C"]
    values: int
    knots: int
    steps: int


class GridFacts(Facts):
    """Facts of a grid of two scores: as `BinsFacts`, and the number of values a cell may have."""

    algorithm: Literal["3"]
    values: int
    cells: str


@dataclass(frozen=True)
class CalibrationAnswer:
    """Verified answer of this kind; `digest` is the SHA-256 of its payload, `envelope` the signed form."""

    answer: Answer
    digest: str
    envelope: bytes
    interpolate: bool = False

    @property
    def map(self) -> ScoreMap:
        """Map of one score. Raises InvalidInput for a calibration of two."""
        from label_dp.companions.maps.score_maps import ScoreMap

        score_map_ = score_map(self.answer)
        if not isinstance(score_map_, ScoreMap):
            raise InvalidInput(
                "This calibration is a map of two scores: apply it to a file that has both, with --scores, "
                "--score-column and --score-2-column."
            )
        return replace(score_map_, interpolate=self.interpolate)

    @property
    def scores(self) -> int:
        """Number of scores of the map."""
        return 1 if self.answer.parameters["scores_2"] is None else 2

    @property
    def pieces(self) -> int:
        """Number of values that the map lists."""
        return int(score_map(self.answer).map.values.size)

    def apply(self, *scores: FloatArray) -> FloatArray:
        """Apply the map to as many columns of finite scores float64[n] as it has: float64[n]. Raises InvalidInput."""
        mapping = replace(score_map(self.answer), interpolate=self.interpolate)
        if len(scores) != self.scores:
            raise InvalidInput(f"The map has {self.scores} score(s), and {len(scores)} column(s) were given.")
        return mapping.apply(*scores)

    def interpolated(self, wanted: bool) -> CalibrationAnswer:
        """Return the calibration, applied by straight lines (`ScoreMap`) if so wanted."""
        return replace(self, interpolate=wanted)

    @property
    def loss(self) -> str:
        return str(self.answer.parameters["loss"])

    @property
    def shape(self) -> str:
        return str(self.answer.parameters["shape"])


def score_map(answer: Answer) -> ScoreMap | PairMap:
    """Read the map of an answer. Raises InvalidInput, MalformedAnswer, KeyError or TypeError."""
    from label_dp.companions.maps.monotone_grid import MonotoneGrid
    from label_dp.companions.maps.score_maps import PairMap, ScoreMap
    from label_dp.companions.maps.scores import ScoreGrid

    parameters, listed_map = answer.parameters, answer.result["map"]
    if parameters["scores_2"] is None:
        return ScoreMap.from_json({"scores": parameters["scores"], "map": listed_map})
    grids = ScoreGrid.parse(parameters["scores"]), ScoreGrid.parse(parameters["scores_2"])
    grid = MonotoneGrid.from_json(listed_map)
    if grid.x_sizes != (grids[0].size, grids[1].size):
        raise MalformedAnswer("The map is over another domain than that of the scores' numbers.")
    return PairMap(grids, grid)


def _rule(answer: Answer, parameters: CalibrationParameters, result: CalibrationResult) -> None:
    from label_dp.companions.maps.score_maps import PairMap

    mapping = score_map(answer)
    grids = mapping.grids if isinstance(mapping, PairMap) else (mapping.grid,)
    _check_shape(parameters, grids, mapping.map.values.shape)
    check_charge(answer, Cost(answer.epsilon.randomize.fraction), REPLACE_ONE)
    values, ends = mapping.map.values.reshape(-1), answer.domain.ends
    if not answer.epsilon.randomize or values[0] < ends[0] or values[-1] > ends[1]:
        raise MalformedAnswer("a value of the map lies outside the label domain, or cost nothing.")


def _check_shape(parameters: CalibrationParameters, grids: tuple[ScoreGrid, ...], pieces: tuple[int, ...]) -> None:
    form, most = FORMS.get(parameters.shape), most_pieces(parameters.shape, parameters.options, len(grids))
    if form is None or parameters.loss not in LOSSES or (form.spaced and grids[0].steps is None):
        raise MalformedAnswer("the loss or the shape of a calibration is not known, or it has other numbers of scores.")
    if [str(grid) for grid in grids] != [parameters.scores, parameters.scores_2][: len(grids)]:
        raise MalformedAnswer("how scores are numbered is not in its one spelling.")
    if most is not None and any(have > limit for have, limit in zip(pieces, most, strict=True)):
        raise MalformedAnswer("the map has more pieces than its shape.")


FACTS = (MonotoneFacts, BinsFacts, MediansFacts, PiecesFacts, KnotsFacts, GridFacts)


def _brief(answer: Answer) -> Mapping[str, Any]:
    """Summarise as the number of pieces: the map is long, and for programs."""
    return {"pieces": CalibrationAnswer(answer, "", b"").pieces}


KIND = Kind(CALIBRATION, CalibrationParameters, CalibrationResult, _rule, Asked, "scores", "calibrate", FACTS, _brief)


def open_calibration(envelope: bytes, key: VerifyingKey, audience: str | None) -> CalibrationAnswer:
    """Open a calibration from its envelope. Raises the VerificationFailed of the violated rule."""
    answer, digest = KIND.trusted(envelope, key, audience)
    return CalibrationAnswer(answer, digest, envelope)
