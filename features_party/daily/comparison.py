"""Comparison of two models on the same held-out examples, from privatized labels. No model of a folder is trained on
these examples, which the id and the folder's key choose, the same every day."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from features_party.files.jobs import read_for_training
from features_party.models.folder import SavedModel
from features_party.receive.accepted import AcceptedMessage
from features_party.settings import Settings
from features_party.tables.buckets import IdHash
from features_party.tables.feature_tables import FeatureTable, feature_table
from features_party.tables.join import join
from features_party.training.class_metrics import ClassMetrics, judge_classes, told_indicators
from features_party.training.draws import mixed
from features_party.training.holdout import estimate_on_rows
from features_party.training.intervals import Interval
from label_dp.columnar.parts import TablePath
from label_dp.errors import InvalidFile, InvalidInput, InvalidMechanism, InvalidTable
from label_dp.schemas.json_types import JsonObject
from label_dp.store.table_addresses import TableAddress
from label_dp.store.table_files import table_at

if TYPE_CHECKING:
    import pyarrow as pa

MIN_ROWS = 30  # fewer rows make a normal interval meaningless


@dataclass(frozen=True)
class HoldoutComparison:
    """Comparison: `gain` is yesterday's error less today's, by `measure` (mse, or log_loss of classes), over `rows`."""

    measure: str
    rows: int
    gain: Interval

    def takes_over(self, rule: str) -> bool:
        """Return whether today's model replaces yesterday's, by the `replace` rule of a pipeline."""
        return {
            "better": self.gain.estimate >= 0,
            "surely-better": self.gain.low > 0,
            "unless-surely-worse": self.gain.high >= 0,
        }[rule]

    def as_json(self) -> JsonObject:
        return {
            "measure": self.measure,
            "rows": self.rows,
            "gain": self.gain.estimate,
            "low": self.gain.low,
            "high": self.gain.high,
        }


def compare(
    today: SavedModel, yesterday: SavedModel, messages: list[AcceptedMessage], held_out: FeatureTable, threads: int
) -> HoldoutComparison | str:
    """Compare both models, or return a sentence why not. Both face the same noise, so it hardly widens the interval.
    Raises InvalidInput for models of different labels."""
    kinds = [(saved.card["label"], saved.card["domain"], saved.model.classes is None) for saved in (today, yesterday)]
    if kinds[0][0] != kinds[1][0]:
        raise InvalidInput(
            f"Yesterday's model predicts '{kinds[1][0]}' and today's '{kinds[0][0]}'; give the pipeline another folder."
        )
    if kinds[0] != kinds[1]:
        return "not compared: the models have different label domains"
    try:
        matches = join(messages, held_out)
        if matches.counts.matched < MIN_ROWS:
            return f"not compared: {matches.counts.matched} held-out rows met a label; {MIN_ROWS} or more are needed"
        features = matches.features()
        new, old = (saved.model.predict(features, threads=threads) for saved in (today, yesterday))
        channels = [message.manifest.read_channel() for message in messages]
        if today.model.classes is None:
            rows, priors = (matches.message, matches.bins, matches.position), [message.prior() for message in messages]
            error_estimate = estimate_on_rows(new, old, channels, *rows, priors=priors)
            return HoldoutComparison("mse", error_estimate.rows, error_estimate.mse_below_constant)
        indicators = told_indicators(channels, matches.message, matches.bins)
        metrics = (
            indicators
            if isinstance(indicators, str)
            else judge_classes(new, np.asarray(old), indicators, matches.position)
        )
        if isinstance(metrics, ClassMetrics):
            return HoldoutComparison("log_loss", metrics.rows, metrics.log_loss_below_constant)
        return metrics
    except (InvalidMechanism, InvalidTable) as error:
        return f"not compared: {error.detail}"


def read_all(settings: Settings, base: Path, patterns: Iterable[str], id_column: str, text: list[str]) -> FeatureTable:
    """Read the rows of all files together. Raises InvalidFile (a pattern without a match), InvalidTable (incompatible
    columns), InvalidRows (a repeated id), TooLarge."""
    import pyarrow as pa

    tables = [
        read_for_training(settings, table, id_column, tuple(text), narrow=False).whole
        for table in _tables(base, patterns)
    ]
    try:
        whole = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        types: dict[str, set[str]] = {}
        for table in tables:
            for field in table.schema:
                types.setdefault(field.name, set()).add(str(field.type))
        clashes = "; ".join(f"'{name}' ({', '.join(sorted(kinds))})" for name, kinds in types.items() if len(kinds) > 1)
        raise InvalidTable(f"The feature files have columns of types that do not go together: {clashes}.") from None
    return feature_table(whole, id_column)


def _tables(base: Path, patterns: Iterable[str]) -> list[TablePath]:
    matches: dict[str, TablePath] = {}
    for pattern in patterns:
        if TableAddress.parse(pattern).kind != "file":
            matches[pattern] = table_at(pattern)
            continue
        path = base / pattern
        paths = [path] if path.exists() else [Path(one) for one in sorted(glob.glob(str(path)))]  # noqa: PTH207 - the pattern may be absolute
        if not paths:
            raise InvalidFile(f"There is no feature file '{path}'.")
        matches |= {str(one): table_at(one) for one in paths}
    return list(matches.values())


def split(table: FeatureTable, share: float, key: str) -> tuple[FeatureTable, FeatureTable]:
    """Split into (training, held out). Raises InvalidTable if one of them would be empty."""
    draws = mixed(IdHash.keyed(key.encode()).draws(table.ids), "held out of every day")
    outside = draws < np.uint64(share * 2.0**64)
    if outside.all() or not outside.any():
        raise InvalidTable(f"{table.rows} rows are too few to hold some out; give more, or hold a larger share out.")
    return _part(table, ~outside), _part(table, outside)


def _part(table: FeatureTable, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> FeatureTable:
    import pyarrow as pa

    mask: pa.Array = pa.array(rows)
    aside = table.ids.filter(pa.array(~rows))
    return FeatureTable(table.ids.filter(mask), table.features.filter(mask), table.id_column, aside)
