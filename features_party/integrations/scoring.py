"""A scorer from privatized labels, for `cross_val_score`, `GridSearchCV` and whatever else takes `scoring=`.

    from features_party.integrations.scoring import PrivatizedScorer

    scorer = PrivatizedScorer(["day-1.parquet"], labels_key="signing.pub", id_column="click_id")
    GridSearchCV(model, {"model": ["linear", "trees"]}, scoring=scorer).fit(clicks)

True labels are not needed, and no ε is spent: post-processing of a message keeps its guarantee.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.bootstrap import bootstrap
from features_party.integrations.frames import Messages, PathLike, at_home, identified, key_of, paths_of
from features_party.models.trainer import check_one_label, common_domain
from features_party.receive.accepted import AcceptedMessage
from features_party.tables.join import join
from features_party.training.class_metrics import judge_classes, told_indicators
from features_party.training.holdout import estimate_on_rows
from features_party.training.intervals import Interval
from label_dp.columnar.frames import Frame
from label_dp.documents.signing import VerifyingKey
from label_dp.domain import Domain
from label_dp.errors import InvalidInput, InvalidMechanism

FloatArray = npt.NDArray[np.float64]


class PrivatizedScorer:
    """Scorer: error of the mean less the model's error, over the true labels; larger is better.

    In squared label units; in log loss for named classes. The estimate is unbiased: scores of models on the same rows
    have the same noise, so they compare well even if each is uncertain. `X` has the ids in `id_column`, or, if None, in
    its pandas index. Messages are verified and accounted for at the first score, in the audit store of `home` (default:
    FEATURES_PARTY_HOME).
    """

    def __init__(
        self,
        messages: Messages,
        *,
        labels_key: PathLike | VerifyingKey | None = None,
        id_column: str | None = "id",
        home: PathLike | None = None,
    ) -> None:
        self.messages = messages
        self.labels_key = labels_key
        self.id_column = id_column
        self.home = home
        self._accepted: list[AcceptedMessage] | None = None

    def __call__(self, estimator: Any, X: Frame, y: object = None) -> float:
        """Return the score; `y` is ignored. Raises as `interval`."""
        return self.interval(estimator, X).estimate

    def interval(self, estimator: Any, X: Frame) -> Interval:
        """Return the score with its standard error and 95 % interval.

        `estimator` predicts a number for each row, or has `predict_proba` and `classes_`. Raises InvalidInput for
        another shape or other classes, InvalidMechanism if the messages' channel hides the error, InvalidTable if no
        row has a label, VerificationFailed.
        """
        messages = self._messages()
        channels, domain = [m.manifest.read_channel() for m in messages], common_domain(messages)
        matches = join(messages, identified(X, self.id_column))
        rows = matches.message, matches.bins, matches.position
        predictions = _predictions(estimator, X, domain)[matches.position]
        if not domain.nominal:
            priors = [message.prior() for message in messages]
            constant = float(np.mean(matches.corrected))
            return estimate_on_rows(predictions, constant, channels, *rows, priors=priors).mse_below_constant
        indicators = told_indicators(channels, matches.message, matches.bins)
        if isinstance(indicators, str):
            raise InvalidMechanism(f"The score is {indicators}.")
        shares = np.maximum(indicators.mean(axis=0), 1e-6)
        metrics = judge_classes(predictions, shares / shares.sum(), indicators, matches.position)
        if isinstance(metrics, str):
            raise InvalidInput(f"The score is {metrics}.")
        return metrics.log_loss_below_constant

    def _messages(self) -> list[AcceptedMessage]:
        if self._accepted is None:
            with closing(bootstrap(chosen=at_home(self.home))) as party:
                accepted = party.messages.accept_all(paths_of(self.messages), key_of(self.labels_key))
            check_one_label(accepted)
            self._accepted = accepted
        return self._accepted

    def __getstate__(self) -> dict[str, Any]:
        """Drop the messages: another process verifies them itself."""
        return self.__dict__ | {"_accepted": None}


def _predictions(estimator: Any, X: Frame, domain: Domain) -> FloatArray:
    """Predict float64[n], or float64[n, k] for named classes."""
    if domain.k != 2 and not domain.nominal:
        return _numbers(estimator.predict(X), len(X))
    if not hasattr(estimator, "predict_proba"):
        if domain.nominal:
            raise InvalidInput("Labels that are classes are scored by predict_proba, which this estimator has not.")
        return _numbers(estimator.predict(X), len(X))
    shares, classes = np.asarray(estimator.predict_proba(X), np.float64), [str(one) for one in estimator.classes_]
    names = [domain.text(at) for at in range(domain.k)] if domain.names else None
    if shares.ndim != 2 or shares.shape[1] != domain.k or (names is not None and sorted(classes) != sorted(names)):
        raise InvalidInput("The classes of the estimator are not those of the messages.")
    if names is not None:
        shares = shares[:, [classes.index(name) for name in names]]
    if domain.nominal:
        return shares
    low, high = domain.ends
    return np.asarray(low + (high - low) * shares[:, 1], np.float64)


def _numbers(predicted: Any, rows: int) -> FloatArray:
    values = np.asarray(predicted, np.float64)
    if values.shape != (rows,):
        raise InvalidInput("The estimator does not predict one number for each row.")
    return values
