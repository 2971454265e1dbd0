"""Two models on the same held-out examples, from privatized labels: by how much today's error is below yesterday's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from features_party.models.folder import SavedModel
from features_party.receive.accepted import AcceptedMessage
from features_party.tables.feature_tables import FeatureTable
from features_party.tables.join import join
from features_party.training.class_metrics import ClassMetrics, judge_classes, told_indicators
from features_party.training.holdout import estimate_on_rows
from features_party.training.intervals import Interval
from label_dp.errors import InvalidInput, InvalidMechanism, InvalidTable

MIN_ROWS = 30  # below it a normal interval says nothing


@dataclass(frozen=True)
class HoldoutComparison:
    """`gain`: yesterday's error less today's, by `measure` (mse, or log_loss of classes), over `rows`."""

    measure: str
    rows: int
    gain: Interval

    def takes_over(self, rule: str) -> bool:
        """Whether today's model does, by the `replace` of a pipeline."""
        return {
            "better": self.gain.estimate >= 0,
            "surely-better": self.gain.low > 0,
            "unless-surely-worse": self.gain.high >= 0,
        }[rule]

    def as_json(self) -> dict[str, Any]:
        return {
            "measure": self.measure,
            "rows": self.rows,
            "gain": self.gain.estimate,
            "low": self.gain.low,
            "high": self.gain.high,
        }


def compare(
    today: SavedModel, yesterday: SavedModel, messages: list[AcceptedMessage], held: FeatureTable, threads: int
) -> HoldoutComparison | str:
    """The comparison; or a sentence why there is none. Both predictions meet the same noise, so that it costs little.

    Raises InvalidInput for models of different labels.
    """
    kinds = [(saved.card["label"], saved.card["domain"], saved.model.classes is None) for saved in (today, yesterday)]
    if kinds[0][0] != kinds[1][0]:
        raise InvalidInput(
            f"Yesterday's model predicts '{kinds[1][0]}' and today's '{kinds[0][0]}'; give the pipeline another folder."
        )
    if kinds[0] != kinds[1]:
        return "not compared: the models have different label domains"
    try:
        joined = join(messages, held)
        if joined.counts.matched < MIN_ROWS:
            return f"not compared: {joined.counts.matched} held-out rows met a label; {MIN_ROWS} or more are needed"
        features = joined.features()
        new, old = (saved.model.predict(features, threads=threads) for saved in (today, yesterday))
        channels = [message.manifest.read_channel() for message in messages]
        if today.model.classes is None:
            rows, priors = (joined.message, joined.bins, joined.position), [message.prior() for message in messages]
            error_estimate = estimate_on_rows(new, old, channels, *rows, priors=priors)
            return HoldoutComparison("mse", error_estimate.rows, error_estimate.mse_below_constant)
        told = told_indicators(channels, joined.message, joined.bins)
        judged = told if isinstance(told, str) else judge_classes(new, np.asarray(old), told, joined.position)
        if isinstance(judged, ClassMetrics):
            return HoldoutComparison("log_loss", judged.rows, judged.log_loss_below_constant)
        return judged
    except (InvalidMechanism, InvalidTable) as error:
        return f"not compared: {error.detail}"
