"""Command `join` on a cluster of Apache Spark, and `train` there or from files; messages are accounted for as usual."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from features_party.bootstrap import Services
from features_party.files.jobs import Files
from features_party.models.trainer import check_one_label, common_domain, default_loss, limits_of
from features_party.receive.accepted import AcceptedMessage
from features_party.spark.features import SparkFeatures
from features_party.spark.joined import Corrected, joined_here, meet
from features_party.spark.training import NO_ESTIMATE, FilesFit, check_learning, check_loss, feature_types
from features_party.spark.trees import Here, OnSpark
from features_party.tables.feature_files import FeatureFile
from features_party.tables.join import check_correctable, join_summary
from features_party.tables.join_spilled import SpilledJoin
from features_party.tables.unmatched import WATCHED, Limits
from features_party.training.correction import check_correction
from features_party.training.progress import foretold, part, rising
from label_dp.columnar.parts import placed
from label_dp.domain import Domain
from label_dp.errors import InvalidFile, InvalidInput
from label_dp.progress import Progress
from label_dp.schemas.training import Learning
from label_dp.spark.cluster import Cluster, prepare_spark
from label_dp.spark.staging import remove
from label_dp.store.output_files import replacing

STANDS = "Messages that were accepted stay accepted; nothing else was kept."
LOCAL = "local[*]"
# times of nanoseconds may stand beside the categories that Spark counts
OPTIONS: dict[str, Any] = {"spark__driver__maxResultSize": "0", "spark__sql__legacy__parquet__nanosAsLong": "true"}


def join_on_spark(
    services: Services, files: Files, master: str | None, correction: str, progress: Progress, limits: Limits = WATCHED
) -> dict[str, Any]:
    """Write features with labels as a dataset of Parquet files, complete or not at all; otherwise as `join_files`.
    Every worker sees the folder `out`."""
    check_correction(correction)
    out = _folder(files)
    with started(master) as cluster:
        features, _, messages = looked(services, files, progress)
        check_correctable(messages, correction)
        corrected = Corrected.of(messages, correction, progress)
        progress("joining", 0.2)
        with replacing(out, files.force) as temporary:
            temporary.mkdir()
            parts = meet(cluster, features, corrected, temporary, [], limits)
    return join_summary(files.features, out, parts.counts, messages, corrected.corrections)


def train_from_files(
    services: Services, files: Files, engine: str, master: str | None, learning: Learning, progress: Progress
) -> dict[str, Any]:
    """Train trees by the `engine` spark or disk, and save the model to the folder `out`; its card. The joined rows lie
    in the home, which every worker sees, and go at the end. Raises InvalidInput, InvalidLoss, InvalidTable, TooLarge,
    Unavailable before anything is put on record as trained."""
    began, settings, progress = time.monotonic(), services.settings, rising(foretold(progress))
    out = _folder(files)
    check_learning(learning, engine)
    limits, join_part = limits_of(learning), part(progress, 0.0, 0.3)
    with ExitStack() as stack:
        folder = stack.enter_context(_aside(services))
        if engine == "spark":
            cluster = stack.enter_context(started(master))
            features, types, messages = looked(services, files, progress, learning)
            domain, loss = _target(messages, learning, engine)
            corrected = Corrected.of(messages, learning.correction, join_part)
            parts = meet(cluster, features, corrected, folder, [files.id_column, *types], limits)
            work: OnSpark | Here = OnSpark(cluster)
        else:
            file = FeatureFile.open(files.features, files.id_column)
            if file.csv:
                raise InvalidFile(f"'{files.features}': --engine disk takes features as Parquet; write them as such.")
            types = feature_types(file.schema, files.id_column, learning)
            with SpilledJoin.open(file, folder / "join", join_part, memory_mb=settings.memory_limit_mb) as join:
                with placed(files.features):
                    join.load_features()
                messages = accepted(services, files)
                domain, loss = _target(messages, learning, engine)
                join.load_messages(messages, learning.correction)
                parts = joined_here(join, list(types), folder, limits)
            work = Here(settings.threads)
        fit = FilesFit(work, types, parts, learning, loss, settings.threads, settings.table_bytes)
        model = fit.model(progress)
    progress("saving", 0.99)
    with replacing(out, files.force) as temporary:
        return services.trainer.kept(parts, domain, model, NO_ESTIMATE, began, temporary)


def _target(messages: list[AcceptedMessage], learning: Learning, engine: str) -> tuple[Domain, str]:
    """Return the domain and the loss. Raises InvalidLoss."""
    domain, loss = common_domain(messages), learning.loss or default_loss(messages)
    check_loss(loss, domain, engine)
    return domain, loss


def _folder(files: Files) -> Path:
    """Return the folder to write. Raises InvalidInput for options of the local engine only, and for a result that may
    not be written."""
    if files.unmatched is not None:
        raise InvalidInput("This engine lists no ids without a partner: leave it or --list-unmatched out.")
    if not isinstance(files.out, Path):
        raise InvalidInput(f"'{files.out}': Spark writes a folder that every worker sees; name one.")
    files.check()
    return files.out


@contextmanager
def _aside(services: Services) -> Iterator[Path]:
    """Yield a folder for this work alone; after a crash it is swept a day later."""
    folder = services.home.incoming(services.home.spill)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        remove(folder)


def started(master: str | None) -> closing[Cluster]:
    """Start a cluster. Raises InvalidSettings if a part of Spark is missing."""
    prepare_spark()
    return closing(Cluster("features-party", master or LOCAL, STANDS, **OPTIONS))


def looked(
    services: Services, files: Files, progress: Progress, learning: Learning | None = None
) -> tuple[SparkFeatures, dict[str, Any], list[AcceptedMessage]]:
    """Open the features' columns, of a training with the types of what it reads, then account for the messages."""
    progress("looking at the features", 0.0)
    features = SparkFeatures.open(files.features, files.id_column)
    types = {} if learning is None else feature_types(features.schema, files.id_column, learning)
    progress("verifying", 0.0)
    return features, types, accepted(services, files)


def accepted(services: Services, files: Files) -> list[AcceptedMessage]:
    """Verify and account for the messages of one label."""
    messages = services.messages.accept_all(files.messages, files.labels_key)
    check_one_label(messages)
    return messages
