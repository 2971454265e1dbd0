"""scikit-learn estimators that learn from privatized messages. Need the extra `sklearn`.

from features_party.integrations.sklearn import LabelDPRegressor

model = LabelDPRegressor(messages=["day-1.parquet"], labels_key="signing.pub", id_column="click_id").fit(X)
model.predict(X_new)
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from features_party.bootstrap import bootstrap
from features_party.integrations.frames import Messages, PathLike, at_home, identified, key_of, paths_of
from features_party.models.evaluation import unknown_text
from features_party.models.trainer import check_learning
from features_party.training.classes import named_or_numbers
from features_party.training.encoding import Encoded
from features_party.training.importance import by_column
from features_party.training.learners import learner
from features_party.training.model import ends_of
from features_party.training.threads import openmp_threads
from label_dp.columnar.frames import Frame, as_table
from label_dp.documents.signing import VerifyingKey
from label_dp.domain import Domain
from label_dp.errors import InvalidInput
from label_dp.installing import pip_install
from label_dp.schemas.training import Learning
from label_dp.schemas.validation import as_model

openmp_threads(1)  # before scikit-learn loads OpenMP, unless it is imported already
try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise ImportError(f"These estimators need scikit-learn: {pip_install('sklearn')}.") from None

NO_LABELS = (
    "A score needs true labels: pass y (fit ignores it). Without true labels, card_['report']['error_estimate'] has "
    "the held-out gain over a constant, and PrivatizedScorer of features_party.integrations.scoring scores by "
    "privatized labels."
)


class _Messages(BaseEstimator):
    """Estimator whose `fit` takes the features; the labels come from the messages."""

    def __init__(
        self,
        messages: Messages = (),
        *,
        labels_key: PathLike | VerifyingKey | None = None,
        id_column: str | None = "id",
        model: str = "ensemble",
        loss: str | None = None,
        correction: str = "auto",
        categorical: Sequence[str] = (),
        exclude: Sequence[str] = (),
        home: PathLike | None = None,
    ) -> None:
        self.messages = messages
        self.labels_key = labels_key
        self.id_column = id_column
        self.model = model
        self.loss = loss
        self.correction = correction
        self.categorical = categorical
        self.exclude = exclude
        self.home = home

    def __sklearn_tags__(self) -> Any:
        """Declare that text and missing values are features too, and y is not needed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.target_tags.required = False
        return tags

    def fit(self, X: Frame, y: object = None) -> Self:
        """Train. Raises the errors of `train`."""
        if y is not None:
            warnings.warn("y is ignored: the labels come from the messages", stacklevel=3)
        options = {"model": self.model, "loss": self.loss, "correction": self.correction}
        columns = {"categorical": list(self.categorical), "exclude": list(self.exclude)}
        learning = self._checked(as_model(options | columns, Learning))
        check_learning(learning)
        table = identified(X, self.id_column)
        with closing(bootstrap(chosen=at_home(self.home))) as party, tempfile.TemporaryDirectory() as folder:
            accepted = party.messages.accept_all(paths_of(self.messages), key_of(self.labels_key))
            self.card_: dict[str, Any] = party.trainer.train(
                accepted, table, learning, Path(folder) / "model", actor=type(self).__name__
            )
            self.model_ = party.models.named(f"{folder}/model").model
            self._threads = party.settings.threads
        if (warning := self.card_["report"]["unmatched_warning"]) is not None:
            warnings.warn(warning, stacklevel=2)
        names = [name for name in table.features.column_names if name not in learning.exclude]
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)
        self.n_rows_ = int(self.card_["report"]["matched"])
        return self

    @property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """Shares of the features, float64[n_features_in_], that sum to 1; 0 for unused columns, and for all if the
        model learned nothing. Raises AttributeError for linear and mlp."""
        check_is_fitted(self, "model_")
        if not learner(self.model_.kind).of_trees:
            raise AttributeError(
                f"A model '{self.model_.kind}' tells no importance of its features; ensemble and trees do."
            )
        shares = by_column(self.model_.body.importance(self.model_.schema), self.model_.schema)
        return np.array([shares.get(str(name), 0.0) for name in self.feature_names_in_])

    def _checked(self, learning: Learning) -> Learning:
        return learning

    def _predicted(self, X: Frame) -> npt.NDArray[np.float64]:
        """Predict for frames with or without the id. Raises InvalidTable for a missing column."""
        encoded = self._encoded(X)
        return self.model_.predict_encoded(encoded, threads=self._threads)

    def _encoded(self, X: Frame) -> Encoded:
        """Encode a frame. Warns of categories unseen in training."""
        check_is_fitted(self, "model_")
        encoded = self.model_.schema.encode(as_table(X))
        for column, cells in encoded.unknown_cells.items():
            warnings.warn(unknown_text(column, cells, len(encoded)), stacklevel=4)
        return encoded


class LabelDPRegressor(RegressorMixin, _Messages):
    """The project's training as an estimator: `fit` takes the features, the labels come from the messages.

    Parameters are those of `features-party train`. `X` is a frame (Arrow, pandas, polars) with the column `id_column`;
    None: the index of a pandas frame has the ids, for example behind transformers of scikit-learn. `home`: folder of
    our audit store and keys (default: FEATURES_PARTY_HOME).

    Fitting verifies the messages and writes to this party's own audit store, as `train` does. After `fit`: `card_` (the
    model's card: messages, ε, error estimate), `model_`, `n_features_in_` and `feature_names_in_` (without the id),
    `feature_importances_`, `n_rows_` matched.
    """

    def fit(self, X: Frame, y: object = None) -> Self:
        """Join the messages with the rows of `X` by id and train. `y` is ignored, with a warning: true labels must not
        slip in.

        Raises the errors of `train` (VerificationFailed, InvalidTable ...), InvalidInput for classes, which
        LabelDPClassifier takes.
        """
        super().fit(X, y)
        self.model_.require_number("LabelDPRegressor")
        return self

    def predict(self, X: Frame) -> npt.NDArray[np.float64]:
        """Predict float64[n] inside the label domain, for frames with or without the id. Raises InvalidTable for a
        missing column."""
        return self._predicted(X)

    def predict_quantiles(self, X: Frame, quantiles: Sequence[float]) -> npt.NDArray[np.float64]:
        """Predict float64[n, q], as TrainedModel.predict_quantiles. Raises InvalidInput if the model has no
        quantiles."""
        encoded = self._encoded(X)
        return self.model_.quantiles_encoded(encoded, quantiles, threads=self._threads)

    def predict_interval(self, X: Frame, level: float = 0.9) -> npt.NDArray[np.float64]:
        """Predict float64[n, 2], the ends of an interval with the label with probability `level`. Raises as
        predict_quantiles."""
        return self.predict_quantiles(X, ends_of(level))

    def score(self, X: Frame, y: npt.ArrayLike | None = None, sample_weight: npt.ArrayLike | None = None) -> float:
        """Compute R² against true labels `y`. Raises InvalidInput without them, as in a cross-validation of `X`
        alone."""
        if y is None:
            raise InvalidInput(NO_LABELS)
        return float(super().score(X, y, sample_weight))


class LabelDPClassifier(ClassifierMixin, _Messages):
    """Classifier for labels of 2 to 100 values without order: it trains with the log loss (`loss` is None or log) and
    predicts probabilities.

    Parameters and attributes are those of LabelDPRegressor, and `classes_`, float64[k] or the names str[k].
    """

    def fit(self, X: Frame, y: object = None) -> Self:
        """Train as LabelDPRegressor.fit. Raises InvalidInput for another loss, InvalidLoss for a domain of another
        size."""
        super().fit(X, y)
        self.classes_ = named_or_numbers(Domain.from_json(self.card_["domain"]))
        return self

    def _checked(self, learning: Learning) -> Learning:
        if learning.loss not in (None, "log"):
            raise InvalidInput("LabelDPClassifier trains with the log loss; leave loss out, or use LabelDPRegressor.")
        return learning.model_copy(update={"loss": "log"})

    def predict_proba(self, X: Frame) -> npt.NDArray[np.float64]:
        """Predict float64[n, k], the probabilities of `classes_`. Raises InvalidTable for a missing column."""
        predictions = self._predicted(X)
        if predictions.ndim == 2:
            return predictions
        low, high = Domain.from_json(self.card_["domain"]).ends
        larger = (predictions - low) / (high - low)
        return np.stack([1.0 - larger, larger], axis=1)

    def predict(self, X: Frame) -> npt.NDArray[Any]:
        """Predict the likeliest label float64[n], or its name str[n]. Raises InvalidTable for a missing column."""
        shares = self.predict_proba(X)
        return np.asarray(self.classes_[shares.argmax(axis=1)])

    def score(self, X: Frame, y: npt.ArrayLike | None = None, sample_weight: npt.ArrayLike | None = None) -> float:
        """Compute the accuracy against true labels `y`. Raises InvalidInput without them."""
        if y is None:
            raise InvalidInput(NO_LABELS)
        return float(super().score(X, y, sample_weight))
