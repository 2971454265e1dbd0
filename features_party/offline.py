"""Join and train on files, with no service running: the same services, called by the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from features_party.bootstrap import Services
from features_party.correction import CORRECTIONS
from features_party.feature_tables import read_features
from features_party.intake.accepted import AcceptedMessage
from features_party.join import join, list_unmatched, write_table
from features_party.trainer import Options, check_one_label
from shared.errors import Conflict, InvalidInput
from shared.message.signing import VerifyingKey
from shared.service.cli import Progress


def accept_all(services: Services, paths: list[Path], key: VerifyingKey | None) -> list[AcceptedMessage]:
    """Verify all messages before the first one is accounted for, then account for each."""
    for path in paths:
        services.intake.verify(path, key)
    return [services.intake.accept(path, key) for path in paths]


def join_files(
    services: Services,
    paths: list[Path],
    key: VerifyingKey | None,
    features: Path,
    id_column: str,
    correction: str,
    out: Path,
    unmatched: Path | None,
    progress: Progress,
) -> dict[str, Any]:
    """Write features with labels to `out`; returns counts and corrections."""
    if correction not in CORRECTIONS:
        raise InvalidInput(f"There is no correction '{correction}'; choose one of {', '.join(CORRECTIONS)}.")
    progress("reading features", 0.0)
    table = read_features(features, id_column)
    progress("verifying", 0.2)
    messages = accept_all(services, paths, key)
    check_one_label(messages)
    progress("joining", 0.4)
    joined = join(messages, table, correction)
    progress("writing", 0.7)
    write_table(joined.as_table(), out)
    if unmatched is not None:
        list_unmatched(joined, unmatched)
    return {
        "table": str(out),
        "counts": joined.counts.as_json(),
        "messages": [
            {"release": m.release, "already_accepted": not m.fresh, **c.as_json()}
            for m, c in zip(joined.messages, joined.corrections, strict=True)
        ],
    }


def train_files(
    services: Services,
    paths: list[Path],
    key: VerifyingKey | None,
    features: Path,
    id_column: str,
    options: Options,
    out: Path,
    unmatched: Path | None,
    progress: Progress,
) -> dict[str, Any]:
    """Train on files and save the model to the folder `out`; returns its card."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Conflict(f"'{out}' exists and is not empty; choose another --out or remove it.")
    progress("reading features", 0.0)
    table = read_features(features, id_column, text=options.categorical)
    messages = accept_all(services, paths, key)
    if unmatched is not None:
        list_unmatched(join(messages, table, "none"), unmatched)
    return services.trainer.train(messages, table, options, out, progress)
