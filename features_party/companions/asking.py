"""Asking a labels party for a calibration: scores of a batch's examples go out, its signed map comes back.

The whole batch is charged as soon as the scores are taken, so a call must be safe to repeat: its `Idempotency-Key`
stands for all that is sent, and the same scores on the same terms get the same answer, charged once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.models.folder import SavedModel
from features_party.receive.answers import SignedAnswer
from features_party.receive.labels_service import LabelsService
from features_party.tables.feature_tables import FeatureTable
from label_dp.columnar.frames import arrow_stream
from label_dp.companions.kinds.calibration import CALIBRATION, CalibrationAnswer
from label_dp.companions.maps.scores import FLOAT32
from label_dp.companions.maps.shapes import GRID
from label_dp.errors import InvalidInput, MalformedAnswer, NotFound
from label_dp.privacy import Epsilon
from label_dp.progress import Progress
from label_dp.schemas.calibration import Calibration as Asking

if TYPE_CHECKING:
    import pyarrow as pa

AUTO = "auto"
FIELDS = ("example_id", "score", "score_2")  # what the labels party's REST interface calls them
BATCH_ROWS = 1 << 16
FloatArray = npt.NDArray[np.float64]


def check_terms(asked: Asking, scores: int) -> None:
    """The labels party judges loss, shape and options. Raises InvalidInput where what is asked for is not a map of one
    score, or of two; InvalidEpsilon."""
    Epsilon.parse(str(asked.epsilon), positive=True)
    if asked.scores_2 is not None and scores != 2:
        raise InvalidInput("`scores_2` numbers second scores, and no second score is sent.")
    if asked.shape != AUTO and (scores == 2) != (asked.shape == GRID):
        raise InvalidInput(f"The shape '{GRID}' has two scores, which are columns of a file; other shapes have one.")


def query_of(asked: Asking, scores: int) -> dict[str, Any]:
    """As the labels party's REST interface takes it, for one score or two."""
    query = asked.model_dump(include=set(Asking.model_fields), exclude_none=True)
    query |= {"epsilon": str(Epsilon.parse(str(asked.epsilon)))}
    if query.pop("additional_release"):
        query["additional_release"] = "true"
    if scores == 2:  # a second score is named, or it would be passed over
        query |= {"scores_2": asked.scores_2 or FLOAT32, "score_2_column": FIELDS[2]}
    return query


@dataclass(frozen=True)
class ScoreTable:
    """Ids string[n], and finite scores float64[n] of each: one, or two."""

    ids: pa.Array
    scores: tuple[FloatArray, ...]

    def body(self) -> bytes:
        """An Arrow stream: unlike a Parquet file's, its bytes depend on the rows alone and not on its writer."""
        import pyarrow as pa

        table = pa.table(dict(zip(FIELDS, (self.ids, *self.scores), strict=False))).combine_chunks()
        return arrow_stream(pa.Table.from_batches(table.to_batches(max_chunksize=BATCH_ROWS), table.schema))


def ask_calibration(
    service: LabelsService,
    batch: str,
    scored: ScoreTable,
    asked: Asking,
    progress: Progress = lambda _what, _share: None,
) -> dict[str, str]:
    """`answer` (its id) and `state` of a charged calibration; the same call again gives the same one.

    Raises NotFound (no such batch, or no allowance), Refusal (beyond it), InvalidInput, Conflict, Unavailable.
    """
    body = scored.body()
    progress("sending scores", 0.3)

    def sent(bytes_: int) -> None:
        progress("sending scores", 0.3 + 0.3 * bytes_ / len(body))

    with who_allows(batch, "calibrations"):
        return service.ask_calibration(batch, body, query_of(asked, len(scored.scores)), sent)


def require_allowance(service: LabelsService, batch: str) -> None:
    """Before any long work. How much is left is not judged: a repeated call costs nothing. Raises NotFound."""
    with who_allows(batch, "calibrations"):
        service.calibration_allowance(batch)


@contextmanager
def who_allows(batch: str, what: str) -> Iterator[None]:
    """A denial is the same whatever its reason; this says what the reasons may be."""
    try:
        yield
    except NotFound:
        raise NotFound(
            f"At the labels party there is no batch '{batch}' of which we may ask for {what}. Its owner must have "
            f"sealed it, named us among its audiences, and allowed ε for it: labels-party allow-{what} {batch} "
            "--epsilon E."
        ) from None


def require_asked(answer: SignedAnswer, kind: str, batch: str, epsilon: Epsilon) -> None:
    """Raises MalformedAnswer where a verified answer is not what was asked for; nothing of it is kept then."""
    of = answer.answer
    if (of.kind, of.batch, of.epsilon.total) != (kind, batch, epsilon):
        raise MalformedAnswer(
            f"The labels party sent a {of.kind} of batch '{of.batch}' at ε {of.epsilon.total} under the id of the "
            f"{kind} that was asked for, of batch '{batch}' at ε {epsilon}; ask it why."
        )


def model_scores(saved: SavedModel, table: FeatureTable, *, threads: int = 1) -> ScoreTable:
    """What the model predicts for the rows of a table, to ask for a calibration of it. Raises InvalidInput for a model
    that has a map already."""
    require_own_predictions(saved)
    return ScoreTable(table.ids, (np.asarray(saved.model.predict(table.features, threads=threads), np.float64),))


def require_own_predictions(saved: SavedModel) -> None:
    """Raises InvalidInput where a calibration could not be applied to the model afterwards."""
    saved.model.require_number("a calibration")
    if saved.model.calibration is not None:
        raise InvalidInput("This model is calibrated already; ask with the one it was made from.")


def calibration_of(signed_answer: SignedAnswer) -> CalibrationAnswer:
    """The calibration that an answer is. Raises MalformedAnswer for an answer of another kind."""
    answer = signed_answer.answer
    if answer.kind != CALIBRATION:
        raise MalformedAnswer(f"Answer '{answer.id}' is a {answer.kind}; a {CALIBRATION} is needed.")
    return CalibrationAnswer(answer, signed_answer.digest, signed_answer.envelope)
