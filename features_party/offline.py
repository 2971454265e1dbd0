"""Join and train on files, with no service running: the same services, called by the command line."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from features_party.bootstrap import Services
from features_party.correction import check_correction
from features_party.evaluation import categories, evaluate_on_messages
from features_party.feature_files import FeatureFile, decoded_bytes
from features_party.feature_tables import FeatureTable, read_features
from features_party.intake.accepted import AcceptedMessage
from features_party.join import join, list_unmatched
from features_party.join_spilled import SpilledJoin
from features_party.message_paths import message_paths
from features_party.registry.folder import load_model
from features_party.settings import Settings
from features_party.trainer import Options, check_one_label
from shared.errors import TooLarge
from shared.message.signing import VerifyingKey
from shared.service.cli import Progress, replacing, writable

MIB = 1 << 20


def accept_all(services: Services, named: list[Path], key: VerifyingKey | None) -> list[AcceptedMessage]:
    """Verify all messages before the first one is accounted for, then account for each."""
    paths = message_paths(named)
    for path in paths:
        services.intake.verify(path, key)
    return [services.intake.accept(path, key) for path in paths]


def join_files(
    services: Services,
    named: list[Path],
    key: VerifyingKey | None,
    features: Path,
    id_column: str,
    correction: str,
    out: Path,
    unmatched: Path | None,
    progress: Progress,
    *,
    force: bool = False,
) -> dict[str, Any]:
    """Write features with labels to `out`, of any size; returns counts and corrections."""
    check_correction(correction)
    for path in (out, unmatched):
        if path is not None:
            writable(path, force)
    progress("looking at the features", 0.0)
    file = FeatureFile.open(features, id_column)
    settings = services.settings
    folder = services.home.incoming(services.home.spill)
    limits = {"memory_mb": settings.memory_limit_mb, "threads": settings.threads}
    with SpilledJoin.open(file, folder, progress, **limits) as work:
        work.load_features()
        progress("verifying", 0.0)
        messages = accept_all(services, named, key)
        check_one_label(messages)
        work.load_messages(messages, correction)
        joined = work.write(out, force=force)
        if unmatched is not None:
            work.list_unmatched(unmatched, force=force)
    return {
        "table": str(out),
        "counts": joined.counts.as_json(),
        "messages": [
            {"release": m.release, "already_accepted": not m.fresh, **c.as_json()}
            for m, c in zip(messages, joined.corrections, strict=True)
        ],
    }


def evaluate_files(
    services: Services,
    model: Path,
    named: list[Path],
    key: VerifyingKey | None,
    features: Path,
    id_column: str,
    progress: Progress,
) -> dict[str, Any]:
    """The error of a saved model on hold-out messages, which are accounted for like any other."""
    saved = load_model(model)
    progress("reading features", 0.0)
    table = read_for_training(services.settings, features, id_column, tuple(categories(saved)))
    messages = accept_all(services, named, key)
    progress("joining and predicting", 0.5)
    return evaluate_on_messages(saved, messages, table, threads=services.settings.threads)


def read_for_training(settings: Settings, features: Path, id_column: str, text: tuple[str, ...]) -> FeatureTable:
    """The whole table in memory. Raises TooLarge with a way out where it would take more than a training may."""
    size, limit = decoded_bytes(features) // MIB, training_memory_mb(settings)
    if size > limit:
        raise TooLarge(
            f"'{features}' takes at least {size:,} MiB in memory; a training may read {limit:,} MiB. Raise "
            "FEATURES_PARTY_TRAINING_MEMORY_MB on a larger machine, train on fewer rows or columns, or write the table "
            "with 'join', which needs no memory for it, and train with a library that reads it piece by piece."
        )
    return read_features(features, id_column, text=text)


def training_memory_mb(settings: Settings) -> int:
    """The setting, or half of the machine's memory (of the container's, where that is less)."""
    if settings.training_memory_mb is not None:
        return settings.training_memory_mb
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no control group, or no limit ("max")
        physical = min(physical, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return max(physical // 2 // MIB, 1)


def train_files(
    services: Services,
    named: list[Path],
    key: VerifyingKey | None,
    features: Path,
    id_column: str,
    options: Options,
    out: Path,
    unmatched: Path | None,
    progress: Progress,
    *,
    force: bool = False,
) -> dict[str, Any]:
    """Train on files and save the model to the folder `out`; returns its card."""
    for path in (out, unmatched):
        if path is not None:
            writable(path, force)
    progress("reading features", 0.0)
    table = read_for_training(services.settings, features, id_column, options.categorical)
    messages = accept_all(services, named, key)
    if unmatched is not None:
        list_unmatched(join(messages, table, "none"), unmatched, force=force)
    with replacing(out, force) as temporary:
        return services.trainer.train(messages, table, options, temporary, progress)
