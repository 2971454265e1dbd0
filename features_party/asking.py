"""Asking a labels party for a calibration: scores of a batch's examples go out, its signed map comes back.

The whole batch is charged as soon as the scores are taken, so a call must be safe to repeat: its `Idempotency-Key`
stands for all that is sent, and the same scores on the same terms get the same answer, charged once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.arrivals import Arrivals
from features_party.bootstrap import Services
from features_party.calibrating import score_columns
from features_party.evaluation import categories
from features_party.feature_tables import FeatureTable, read_features
from features_party.intake.answers import SignedAnswer
from features_party.intake.receipts import Delivery
from features_party.labels_service import LabelsService
from features_party.pull import pull_answer
from features_party.pull_since import Patience, await_published
from features_party.registry.folder import SavedModel
from shared.errors import Conflict, InvalidInput, MalformedAnswer, NotFound, Unavailable
from shared.frames import arrow_stream
from shared.message.calibration import CALIBRATION, GRID
from shared.message.signing import VerifyingKey
from shared.privacy import Epsilon
from shared.scores import FLOAT32
from shared.service.cli import Progress

if TYPE_CHECKING:
    import pyarrow as pa

AUTO = "auto"
FIELDS = ("example_id", "score", "score_2")  # what the labels party's REST interface calls them
BATCH_ROWS = 1 << 16
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Terms:
    """What a calibration is asked for by; the labels party judges loss, shape and options."""

    batch: str
    epsilon: Epsilon
    loss: str = "squared"
    shape: str = AUTO
    options: tuple[str, ...] = ()
    numbers: str = FLOAT32
    numbers_2: str | None = None
    additional_release: bool = False

    def check(self, scores: int) -> None:
        """Raises InvalidInput where they are not those of a map of one score, or of two."""
        if self.numbers_2 is not None and scores != 2:
            raise InvalidInput("--numbers-2 goes with a second score; name its column with --score-2-column.")
        if self.shape != AUTO and (scores == 2) != (self.shape == GRID):
            raise InvalidInput(
                f"The shape '{GRID}' has two scores, which are columns of a file; other shapes have one."
            )

    def query(self, scores: int) -> dict[str, Any]:
        """As the labels party's REST interface takes them, for one score or two."""
        found: dict[str, Any] = {"epsilon": str(self.epsilon), "loss": self.loss, "shape": self.shape}
        found |= {"option": list(self.options), "scores": self.numbers}
        if scores == 2:  # a second score is named, or it would be passed over
            found |= {"scores_2": self.numbers_2 or FLOAT32, "score_2_column": FIELDS[2]}
        return found | ({"additional_release": "true"} if self.additional_release else {})


@dataclass(frozen=True)
class Scored:
    """Ids string[n], and finite scores float64[n] of each: one, or two."""

    ids: pa.Array
    scores: tuple[FloatArray, ...]

    def body(self) -> bytes:
        """An Arrow stream: unlike a Parquet file's, its bytes depend on the rows alone and not on its writer."""
        import pyarrow as pa

        table = pa.table(dict(zip(FIELDS, (self.ids, *self.scores), strict=False))).combine_chunks()
        return arrow_stream(pa.Table.from_batches(table.to_batches(max_chunksize=BATCH_ROWS), table.schema))


@dataclass(frozen=True)
class AskJob:
    """`model`: a folder, or an id of the registry, that scores the examples of `file`; or else the columns of `file`
    that hold one score or two. `wait` seconds for the publication; 0: not at all."""

    terms: Terms
    file: Path
    id_column: str
    model: str | None = None
    score_columns: tuple[str, ...] = ()
    labels_key: VerifyingKey | None = None
    wait: float = 0.0

    def check(self) -> None:
        """Raises InvalidInput where the parts do not go together."""
        if (self.model is None) == (not self.score_columns):
            raise InvalidInput("Name a model with --model, or a column of scores in the file with --score-column.")
        self.terms.check(scores=len(self.score_columns) or 1)


def model_scores(saved: SavedModel, table: FeatureTable, *, threads: int = 1) -> Scored:
    """What the model predicts for the rows of a table. Raises InvalidInput for a model that has a map already."""
    require_own_predictions(saved)
    return Scored(table.ids, (np.asarray(saved.model.predict(table.features, threads=threads), np.float64),))


def require_own_predictions(saved: SavedModel) -> None:
    """Raises InvalidInput where a calibration could not be applied to the model afterwards."""
    if saved.model.calibration is not None:
        raise InvalidInput("This model is calibrated already; ask with the one it was made from.")


def ask_calibration(
    service: LabelsService, scored: Scored, terms: Terms, progress: Progress = lambda _what, _share: None
) -> dict[str, str]:
    """`answer` (its id) and `state` of a charged calibration; the same call again gives the same one.

    Raises NotFound (no such batch, or no allowance), Refusal (beyond it), InvalidInput, Conflict, Unavailable.
    """
    body = scored.body()
    progress("sending scores", 0.3)

    def sent(bytes_: int) -> None:
        progress("sending scores", 0.3 + 0.3 * bytes_ / len(body))

    with _told_who_allows(terms.batch):
        return service.ask_calibration(terms.batch, body, terms.query(len(scored.scores)), sent)


def require_allowance(service: LabelsService, batch: str) -> None:
    """Before any long work. How much is left is not judged: a repeated call costs nothing. Raises NotFound."""
    with _told_who_allows(batch):
        service.calibration_allowance(batch)


@contextmanager
def _told_who_allows(batch: str) -> Iterator[None]:
    """A denial is the same whatever its reason; this says what the reasons may be."""
    try:
        yield
    except NotFound:
        raise NotFound(
            f"At the labels party there is no batch '{batch}' of which we may ask for calibrations. Its owner must "
            f"have sealed it, named us among its audiences, and allowed ε for it: labels-party allow-calibrations "
            f"{batch} --epsilon E."
        ) from None


@dataclass(frozen=True)
class Asked:
    """A charged calibration, and where its publication was waited for, what came and how our receipts went."""

    name: str
    state: str
    scores: int
    found: SignedAnswer | None = None
    delivery: Delivery | None = None

    def as_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {} if self.found is None else self.found.summary() | {"fresh": self.found.fresh}
        if self.delivery is not None:
            told["receipts"] = self.delivery.as_json()
        return {"answer": self.name, "state": self.state, "scores": self.scores} | told


def run(services: Services, service: LabelsService, job: AskJob, progress: Progress) -> Asked:
    """Score, ask, wait, fetch, verify, account, acknowledge. `job.check` came before.

    Raises what `ask_calibration` and `pull_answer` raise; once the calibration is charged a repeated run goes on with
    it.
    """
    if job.labels_key is None:
        services.pinned.required()  # nothing is charged that could not be verified
    require_allowance(service, job.terms.batch)
    scored = _scored(services, job, progress)
    asked = ask_calibration(service, scored, job.terms, progress)
    name, sent = asked["answer"], len(scored.ids)
    if not job.wait:
        return Asked(name, asked["state"], sent)
    try:
        await_published(service, name, Patience(job.wait), lambda what, _: progress(what, 0.7), noun="answer")
    except Unavailable as error:
        raise Unavailable(f"{error.detail} It is charged; the same command again goes on with it at no cost.") from None
    except Conflict as error:
        raise Conflict(f"{error.detail} A new one, with --additional-release or other terms, is charged too.") from None
    progress("fetching", 0.9)
    arrivals = Arrivals(services, job.labels_key)
    envelope = pull_answer(service, name, _chooser(services, job.labels_key), services.settings.name)
    require_asked(services.answers.verify(envelope, job.labels_key), job.terms)
    found = arrivals.answer(envelope)
    return Asked(name, "published", sent, found, arrivals.acknowledge(service))


def require_asked(found: SignedAnswer, terms: Terms) -> None:
    """Raises MalformedAnswer where a verified answer is not what was asked for; nothing of it is kept then."""
    answer = found.answer
    if (answer.kind, answer.batch, answer.split.total) != (CALIBRATION, terms.batch, terms.epsilon):
        raise MalformedAnswer(
            f"The labels party sent a {answer.kind} of batch '{answer.batch}' at ε {answer.split.total} under the id "
            f"of the calibration that was asked for, of batch '{terms.batch}' at ε {terms.epsilon}; ask it why."
        )


def _scored(services: Services, job: AskJob, progress: Progress) -> Scored:
    """Raises NotFound, InvalidFile, InvalidTable, InvalidRows, InvalidInput."""
    progress("reading", 0.05)
    if job.model is None:
        columns = score_columns(job.file, job.id_column, job.score_columns)
        return Scored(columns.table.ids, tuple(columns.scores.values()))
    saved = services.models.named(job.model)
    require_own_predictions(saved)
    table = read_features(job.file, job.id_column, text=categories(saved))
    progress("predicting", 0.15)
    return model_scores(saved, table, threads=services.settings.threads)


def _chooser(services: Services, key: VerifyingKey | None) -> Callable[[bytes], VerifyingKey]:
    return lambda envelope: key if key is not None else services.pinned.for_envelope(envelope)
