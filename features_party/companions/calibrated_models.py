"""Applying a calibration: a model whose predictions go through its map, or a file of scores."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from features_party.models.card import epsilon_by_population
from features_party.models.card_reading import reading_card
from features_party.models.evaluation import finite, true_labels
from features_party.models.folder import SavedModel, save_model
from features_party.models.reliability import Reliability, reliability
from features_party.models.store import Models
from features_party.models.trainer import check_one_label
from features_party.receive.accepted import AcceptedMessage, described
from features_party.storage.tables import scored_models
from features_party.tables.feature_tables import FeatureTable, read_features
from features_party.tables.join import join
from features_party.tables.output import write_table
from features_party.training.holdout import identify
from label_dp.columnar.parts import TablePath
from label_dp.columnar.tables import require_columns
from label_dp.companions.kinds.calibration import CalibrationAnswer
from label_dp.documents.signing import SigningKey
from label_dp.errors import Conflict, InvalidInput, InvalidTable
from label_dp.schemas.json_types import JsonObject
from label_dp.store.database import Database

FloatArray = npt.NDArray[np.float64]
WHY_NOT = "none: the model was calibrated afterwards, and the estimate was of its predictions before"


@reading_card()
def calibrated(saved: SavedModel, calibration: CalibrationAnswer, created: str) -> SavedModel:
    """The model with the map behind its predictions, and the card that says so; not saved yet.

    The scores that were sent must have been this model's predictions. Raises InvalidInput (a map of two scores, another
    label, a model that has a map already, or one of classes).
    """
    saved.model.require_number("a calibration")
    answer, score_map = calibration.answer, calibration.map
    if answer.population.label != saved.card["label"]:
        raise InvalidInput(
            f"The calibration is of another label, '{answer.population.label[:60]}', than the model predicts, "
            f"'{str(saved.card['label'])[:60]}'; use it with a model of the same label."
        )
    if saved.model.calibration is not None:
        raise InvalidInput("This model is calibrated already; calibrate the one it was made from.")
    about = of_calibration(calibration) | {
        "calibrated": created,
        "interpolated": calibration.interpolate,
        "model_sha256": saved.card["model_sha256"],
    }
    notes = list(saved.card["notes"])
    if answer.domain.as_json() != saved.card["domain"]:
        notes.append("the calibration is over another label domain than the messages that the model learned from")
    card = {name: value for name, value in saved.card.items() if name not in ("format", "version", "model_sha256")}
    card |= {
        "calibration": about,
        "epsilon": epsilon_by_population(saved.card["messages"], answer),
        "report": saved.card["report"] | {"error_estimate": None, "error_estimate_why": WHY_NOT},
        "notes": notes,
    }
    return SavedModel(replace(saved.model, calibration=score_map), card)


def keep_scored(database: Database, answer: str, saved: SavedModel) -> None:
    """Record whose predictions were sent for a calibration; the same model again changes nothing."""

    def record(connection: Connection) -> None:
        if connection.execute(sa.select(scored_models).where(scored_models.c.answer == answer)).first() is None:
            connection.execute(sa.insert(scored_models).values(answer=answer, model_sha256=saved.card["model_sha256"]))

    database.write("calibration.asked", record)


def require_scored(database: Database, answer: str, saved: SavedModel) -> None:
    """Raises Conflict where another model's predictions were sent for this calibration; none recorded says nothing."""
    query = sa.select(scored_models.c.model_sha256).where(scored_models.c.answer == answer)
    sha256 = database.read("calibration.asked", lambda connection: connection.execute(query).scalar())
    if sha256 not in (None, saved.card["model_sha256"]):
        raise Conflict(
            f"Calibration '{answer}' was asked for with the predictions of another model, whose model.json has the "
            f"SHA-256 {str(sha256)[:12]}…; give it that model, or this one's predictions with --scores."
        )


def of_calibration(calibration: CalibrationAnswer) -> JsonObject:
    """What a card, and a command, say of one."""
    return described(calibration.answer) | {
        "answer": calibration.answer.id,
        "document_digest": calibration.digest,
        "loss": calibration.loss,
        "shape": calibration.shape,
        "pieces": calibration.pieces,
    }


def save_calibrated(
    saved: SavedModel, calibration: CalibrationAnswer, created: str, folder: Path, key: SigningKey
) -> JsonObject:
    """As `calibrated`, saved as a new model folder; returns its card. Raises Conflict, InvalidFile too."""
    saved_model = calibrated(saved, calibration, created)
    return save_model(folder, saved_model.model, saved_model.card, key)


def registered_id(model_id: str, calibration: CalibrationAnswer) -> str:
    """The registry's id of a model with a map: the same for the same pair, so that a repeated call makes one model."""
    return "m_" + hashlib.sha256(f"{model_id}:{calibration.digest}:{calibration.interpolate}".encode()).hexdigest()[:24]


def register_calibrated(
    database: Database, models: Models, model_id: str, calibration: CalibrationAnswer, created: str
) -> str:
    """The registry's id of a model (`model_id`: or an alias) with the map; made once. Raises NotFound, InvalidInput."""
    model_id = models.id_of(model_id)
    saved, new_id = models.open(model_id), registered_id(model_id, calibration)
    saved_model = calibrated(saved, calibration, created)
    if models.known(new_id):
        return new_id
    with contextlib.suppress(Conflict):  # a crash, or another call, left the finished folder
        save_model(models.folder(new_id), saved_model.model, saved_model.card, models.key())
    models.keep(new_id)

    def record(connection: Connection) -> None:
        if not models.has(connection, new_id):
            models.record(connection, new_id, models.training_of(connection, model_id), saved_model.card)

    database.write("model.calibrated", record)
    return new_id


@dataclass(frozen=True)
class Labelled:
    """Predictions (or scores) float64[n] before the map, and a label of each: true, or privatized without bias.

    `more`: further scores of the map, of which diagrams show the first alone.
    """

    before: FloatArray
    labels: FloatArray
    more: tuple[FloatArray, ...] = ()

    def clipped(self, calibration: CalibrationAnswer) -> Labelled:
        """The same with true labels clipped to the domain of the map, as those that it was made from."""
        values = calibration.answer.domain.values
        return replace(self, labels=np.clip(self.labels, values[0], values[-1]))

    def after(self, calibration: CalibrationAnswer) -> FloatArray:
        return calibration.apply(self.before, *self.more)

    def diagrams(self, calibration: CalibrationAnswer) -> tuple[Reliability, Reliability]:
        """(before, after); in both, bins of about equally many rows."""
        return reliability(self.before, self.labels), reliability(self.after(calibration), self.labels)

    def errors(self, calibration: CalibrationAnswer) -> dict[str, float]:
        """Mean squared differences from the labels, which of privatized ones hold their noise too."""
        after = self.after(calibration)
        return {
            "mse_before": float(np.mean((self.before - self.labels) ** 2)),
            "mse_after": float(np.mean((after - self.labels) ** 2)),
        }


def with_true_labels(saved: SavedModel, examples: TablePath, label_column: str, *, threads: int = 1) -> Labelled:
    """Predictions of a file with true labels. Raises InvalidTable, InvalidRows."""
    table, labels = true_labels(saved, examples, label_column)
    return Labelled(saved.model.predict(table, threads=threads), labels)


def with_messages(
    saved: SavedModel, messages: Sequence[AcceptedMessage], table: FeatureTable, *, threads: int = 1
) -> Labelled:
    """Predictions of rows with privatized labels. Raises InvalidMechanism where the channel has a bias: bins and
    clipping would show in the diagram as if the model had it."""
    check_one_label(list(messages))
    for message in messages:
        identify(message.manifest.read_channel())
    joined = join(list(messages), table, "debias")
    return Labelled(saved.model.predict(joined.features(), threads=threads), joined.corrected)


@dataclass(frozen=True)
class ScoreFile:
    """Ids, finite scores float64[n] by column and, where the file has them, labels float64[n]."""

    table: Any
    scores: dict[str, FloatArray]
    labels: FloatArray | None

    def labelled(self) -> Labelled | None:
        first, *more = self.scores.values()
        return None if self.labels is None else Labelled(first, self.labels, tuple(more))


def read_scores(
    path: TablePath, id_column: str, names: Sequence[str], label_column: str | None, calibration: CalibrationAnswer
) -> ScoreFile:
    """As many columns of scores as the map has. Raises InvalidFile, InvalidTable, InvalidRows, InvalidInput."""
    if len(names) < calibration.scores:
        raise InvalidInput("This calibration is a map of two scores: name the second with --score-2-column.")
    if len(names) > calibration.scores:
        raise InvalidInput("This calibration is a map of one score: leave --score-2-column out.")
    if "calibrated" in (id_column, *names):
        raise InvalidTable("None of the columns of ids and scores may be called 'calibrated'; rename it.")
    return score_columns(path, id_column, names, label_column)


def score_columns(path: TablePath, id_column: str, names: Sequence[str], label_column: str | None = None) -> ScoreFile:
    """Columns of a file. Raises InvalidFile, InvalidTable, InvalidRows."""
    if len({id_column, *names}) <= len(names):
        raise InvalidTable("Ids and scores are in columns of their own; name a different one for each.")
    wanted = [*names, *([label_column] if label_column is not None else [])]
    feature_table = read_features(path, id_column)
    require_columns(feature_table.features.column_names, wanted, str(path))
    scores = {name: finite(feature_table.features[name], name, "score") for name in names}
    labels = None if label_column is None else finite(feature_table.features[label_column], label_column, "true label")
    return ScoreFile(feature_table, scores, labels)


def write_scores(file: ScoreFile, calibration: CalibrationAnswer, out: Path, *, force: bool = False) -> int:
    """Write id, scores and `calibrated` for every row, in order; returns the rows."""
    import pyarrow as pa

    applied = calibration.apply(*file.scores.values())
    columns = {file.table.id_column: file.table.ids, **file.scores, "calibrated": applied}
    write_table(pa.table(columns), out, force=force)
    return len(applied)
