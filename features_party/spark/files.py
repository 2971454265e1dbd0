"""Commands `join` and `train` on a cluster of Apache Spark; messages are accounted for as usual."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from features_party.bootstrap import Services
from features_party.models.trainer import check_one_label, common_domain, default_loss, limits_of
from features_party.receive.accepted import AcceptedMessage
from features_party.spark.features import SparkFeatures
from features_party.spark.joined import Corrected, meet
from features_party.spark.training import NO_ESTIMATE, ClusterFit, check_columns, check_learning, check_loss, source
from features_party.tables.join import check_correctable, join_summary
from features_party.tables.unmatched import WATCHED, Limits
from features_party.training.correction import check_correction
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import InvalidInput
from label_dp.progress import Progress
from label_dp.schemas.training import Learning
from label_dp.spark.cluster import Cluster, prepare_spark
from label_dp.spark.staging import remove
from label_dp.store.output_files import replacing, writable

STANDS = "Messages that were accepted stay accepted; nothing else was kept."
LOCAL = "local[*]"


@dataclass(frozen=True)
class SparkErrand:
    """Messages and features to join under a master of Spark; `features` lie in any store that Spark reads, `out` where
    every worker sees it."""

    messages: list[Path]
    labels_key: VerifyingKey | None
    features: str
    id_column: str
    out: Path
    master: str | None = None
    force: bool = False
    unmatched: Path | None = None

    @property
    def url(self) -> str:
        """Spark's processes have working folders of their own."""
        return self.features if "://" in self.features else str(Path(self.features).absolute())

    def check(self) -> None:
        """Raise InvalidInput for options of the local engine only, and for a result that may not be written."""
        if self.unmatched is not None:
            raise InvalidInput("Spark lists no ids without a partner: leave --engine spark or --list-unmatched out.")
        writable(self.out, self.force)


def join_on_spark(
    services: Services, errand: SparkErrand, correction: str, progress: Progress, limits: Limits = WATCHED
) -> dict[str, Any]:
    """Write features with labels as a dataset of Parquet files, complete or not at all; otherwise as `join_files`."""
    check_correction(correction)
    errand.check()
    with started(errand.master) as cluster:
        features, messages = looked(services, cluster, errand, progress)
        check_correctable(messages, correction)
        corrected = Corrected.of(messages, correction, progress)
        progress("joining", 0.2)
        with replacing(errand.out, errand.force) as temporary:
            temporary.mkdir()
            parts = meet(cluster, features, corrected, temporary, limits=limits)
    return join_summary(errand.features, errand.out, parts.counts, messages, corrected.corrections)


def train_on_spark(services: Services, errand: SparkErrand, learning: Learning, progress: Progress) -> dict[str, Any]:
    """Train and save the model to the folder `out`; its card. The joined rows lie in the home, which every worker sees,
    and go at the end. Raises InvalidInput, InvalidLoss, InvalidTable, TooLarge, Unavailable before anything is put on
    record as trained."""
    began = time.monotonic()
    errand.check()
    check_learning(learning)
    with started(errand.master) as cluster, _aside(services) as folder:
        features, messages = looked(services, cluster, errand, progress, learning)
        domain, loss = common_domain(messages), learning.loss or default_loss(messages)
        check_loss(loss, domain)
        corrected = Corrected.of(messages, learning.correction, progress)
        progress("joining", 0.2)
        without, allowed = tuple(learning.exclude), limits_of(learning)
        parts = meet(cluster, features, corrected, folder, bare=True, without=without, limits=allowed)
        settings = services.settings
        limits = {"threads": settings.threads, "memory": settings.table_bytes}
        fit = ClusterFit(cluster, features, corrected, parts, learning, loss, **limits)
        model = fit.model(progress)
    progress("saving", 0.99)
    with replacing(errand.out, errand.force) as temporary:
        return services.trainer.kept(source(corrected, parts), domain, model, NO_ESTIMATE, began, temporary)


@contextmanager
def _aside(services: Services) -> Iterator[Path]:
    """Yield a folder for this work alone; after a crash it is swept a day later."""
    folder = services.home.incoming(services.home.spill)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        remove(folder)


@contextmanager
def started(master: str | None) -> Iterator[Cluster]:
    """Start a cluster. Raises InvalidSettings if a part of Spark is missing."""
    prepare_spark()
    cluster = Cluster("features-party", master or LOCAL, STANDS, spark__driver__maxResultSize="0")
    try:
        yield cluster
    finally:
        cluster.close()


def looked(
    services: Services, cluster: Cluster, errand: SparkErrand, progress: Progress, learning: Learning | None = None
) -> tuple[SparkFeatures, list[AcceptedMessage]]:
    """Open the features' columns, then verify and account for the messages."""
    progress("looking at the features", 0.0)
    features = SparkFeatures.open(cluster, errand.url, errand.id_column)
    if learning is not None:
        check_columns(features, learning)
    progress("verifying", 0.0)
    messages = services.messages.accept_all(errand.messages, errand.labels_key)
    check_one_label(messages)
    return features, messages
