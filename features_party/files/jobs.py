"""Commands on files, with no service running: join, train, evaluate, ask for a calibration and apply one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from features_party.bootstrap import Services
from features_party.models.evaluation import evaluate_on_messages
from features_party.models.folder import SavedModel
from features_party.models.trainer import check_one_label
from features_party.settings import Settings
from features_party.tables.feature_files import FeatureFile, decoded_bytes
from features_party.tables.feature_tables import FeatureTable, read_features
from features_party.tables.join import check_correctable, join, join_summary, list_unmatched
from features_party.tables.join_spilled import SpilledJoin
from features_party.tables.output import is_csv, writable_table
from features_party.tables.unmatched import WATCHED, Limits
from features_party.training.correction import check_correction
from label_dp.columnar.parts import TablePath, placed
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import TooLarge
from label_dp.progress import Progress
from label_dp.schemas.training import Learning
from label_dp.store.output_files import replacing, writable
from label_dp.store.table_addresses import TableAddress

MIB = 1 << 20


@dataclass(frozen=True)
class Files:
    """Messages and features to join, and the result's path; `unmatched`: path for ids without a partner."""

    messages: list[Path]
    labels_key: VerifyingKey | None
    features: TablePath
    id_column: str
    out: Path | TableAddress
    unmatched: Path | None = None
    force: bool = False

    def check(self) -> None:
        """Raise InvalidInput if a result may not be written."""
        writable_table(self.out, self.force)
        if self.unmatched is not None:
            writable(self.unmatched, self.force)


def join_files(
    services: Services, files: Files, correction: str, progress: Progress, limits: Limits = WATCHED
) -> dict[str, Any]:
    """Write features with labels, of any size, to `out`; returns counts and corrections."""
    check_correction(correction)
    files.check()
    progress("looking at the features", 0.0)
    file = FeatureFile.open(files.features, files.id_column, typed=not is_csv(files.out))
    folder = services.home.incoming(services.home.spill)
    with SpilledJoin.open(file, folder, progress, memory_mb=services.settings.memory_limit_mb) as work:
        with placed(files.features):
            work.load_features()
        progress("verifying", 0.0)
        messages = services.messages.accept_all(files.messages, files.labels_key)
        check_one_label(messages)
        check_correctable(messages, correction)
        work.load_messages(messages, correction)
        counts = work.write(files.out, unmatched=files.unmatched, force=files.force, limits=limits)
    return join_summary(files.features, files.out, counts, messages, work.corrections)


def evaluate_files(
    services: Services,
    saved: SavedModel,
    named: list[Path],
    key: VerifyingKey | None,
    features: TablePath,
    id_column: str,
    progress: Progress,
) -> dict[str, Any]:
    """Estimate the error of a saved model on hold-out messages, which are accounted for like any other."""
    progress("reading features", 0.0)
    table = read_for_training(services.settings, features, id_column, None)
    messages = services.messages.accept_all(named, key)
    progress("joining and predicting", 0.5)
    return evaluate_on_messages(saved, messages, table, threads=services.settings.threads)


def read_for_training(
    settings: Settings, features: TablePath, id_column: str, text: Sequence[str] | None, *, narrow: bool = False
) -> FeatureTable:
    """Read the whole table into memory; `text` and `narrow` as in `read_features`. Raises TooLarge, with advice, if it
    exceeds a training's memory."""
    size, limit = decoded_bytes(features) // MIB, settings.table_bytes // MIB
    if size > limit:
        raise TooLarge(
            f"'{features}' takes at least {size:,} MiB in memory; a training may read {limit:,} MiB. Raise "
            "FEATURES_PARTY_TRAINING_MEMORY_MB on a larger machine, train on fewer rows or columns, or train the model "
            "trees with --engine disk."
        )
    return read_features(features, id_column, text=text, narrow=narrow)


def train_files(services: Services, files: Files, learning: Learning, progress: Progress) -> dict[str, Any]:
    """Train on files and save the model to the folder `out`; returns its card."""
    files.check()
    earlier = None if learning.warm_start is None else services.models.named(learning.warm_start)
    progress("reading features", 0.0)
    table = read_for_training(
        services.settings, files.features, files.id_column, tuple(learning.categorical), narrow=True
    )
    messages = services.messages.accept_all(files.messages, files.labels_key)
    if files.unmatched is not None:
        list_unmatched(join(messages, table, "none"), files.unmatched, force=files.force)
    assert isinstance(files.out, Path)  # the folder of a model
    with replacing(files.out, files.force) as temporary:
        return services.trainer.train(messages, table, learning, temporary, progress, earlier=earlier)
