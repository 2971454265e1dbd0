"""Commands `join` and `train` on a cluster of Apache Spark; messages are accounted for as usual."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from features_party.bootstrap import Services
from features_party.files.jobs import Files
from features_party.models.trainer import check_one_label, common_domain, default_loss, limits_of
from features_party.receive.accepted import AcceptedMessage
from features_party.spark.features import SparkFeatures
from features_party.spark.joined import Corrected, meet
from features_party.spark.training import NO_ESTIMATE, ClusterFit, check_columns, check_learning, check_loss
from features_party.tables.join import check_correctable, join_summary
from features_party.tables.unmatched import WATCHED, Limits
from features_party.training.correction import check_correction
from label_dp.errors import InvalidInput
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
        features, messages = looked(services, files, progress)
        check_correctable(messages, correction)
        corrected = Corrected.of(messages, correction, progress)
        progress("joining", 0.2)
        with replacing(out, files.force) as temporary:
            temporary.mkdir()
            parts = meet(cluster, features, corrected, temporary, [], limits)
    return join_summary(files.features, out, parts.counts, messages, corrected.corrections)


def train_on_spark(
    services: Services, files: Files, master: str | None, learning: Learning, progress: Progress
) -> dict[str, Any]:
    """Train and save the model to the folder `out`; its card. The joined rows lie in the home, which every worker sees,
    and go at the end. Raises InvalidInput, InvalidLoss, InvalidTable, TooLarge, Unavailable before anything is put on
    record as trained."""
    began = time.monotonic()
    out = _folder(files)
    check_learning(learning)
    with started(master) as cluster, _aside(services) as folder:
        features, messages = looked(services, files, progress, learning)
        domain, loss = common_domain(messages), learning.loss or default_loss(messages)
        check_loss(loss, domain)
        corrected = Corrected.of(messages, learning.correction, progress)
        progress("joining", 0.2)
        names = [name for name in features.columns if name not in learning.exclude]
        parts = meet(cluster, features, corrected, folder, names, limits_of(learning))
        settings = services.settings
        limits = {"threads": settings.threads, "memory": settings.table_bytes}
        fit = ClusterFit(cluster, features, corrected, parts, learning, loss, **limits)
        model = fit.model(progress)
    progress("saving", 0.99)
    with replacing(out, files.force) as temporary:
        return services.trainer.kept(parts, domain, model, NO_ESTIMATE, began, temporary)


def _folder(files: Files) -> Path:
    """Return the folder to write. Raises InvalidInput for options of the local engine only, and for a result that may
    not be written."""
    if files.unmatched is not None:
        raise InvalidInput("Spark lists no ids without a partner: leave --engine spark or --list-unmatched out.")
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
) -> tuple[SparkFeatures, list[AcceptedMessage]]:
    """Open the features' columns, then verify and account for the messages."""
    progress("looking at the features", 0.0)
    features = SparkFeatures.open(files.features, files.id_column)
    if learning is not None:
        check_columns(features, learning)
    progress("verifying", 0.0)
    messages = services.messages.accept_all(files.messages, files.labels_key)
    check_one_label(messages)
    return features, messages
