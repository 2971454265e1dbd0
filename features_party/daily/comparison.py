"""Comparison of two models on the same held-out examples, from privatized labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from features_party.models.folder import SavedModel
from features_party.receive.accepted import AcceptedMessage
from features_party.tables.feature_tables import FeatureTable
from features_party.tables.join import join
from features_party.training.class_metrics import ClassMetrics, judge_classes, told_indicators
from features_party.training.holdout import estimate_on_rows
from features_party.training.intervals import Interval
from label_dp.errors import InvalidInput, InvalidMechanism, InvalidTable
from label_dp.schemas.json_types import JsonObject

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
