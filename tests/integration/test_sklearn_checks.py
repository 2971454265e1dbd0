"""scikit-learn's own checks of estimators, on ours.

They call `fit(X, y)` with arrays. Ours takes frames with ids and has its labels from messages, so an adapter gives rows
ids and signs a message of y. What checks say of arrays and of y (shapes, sparse matrices, infinite numbers) they say of
the adapter, and what they say of parameters, state, pickles, repeated fits, order and subsets of rows, and of
predictions, they say of ours. None is left out but array_api, which scikit-learn itself skips without its setting.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted, validate_data

from features_party.integrations.sklearn import LabelDPClassifier, LabelDPRegressor
from label_dp.documents.signing import SigningKey
from tests.support.messages import Sender, rr

pytestmark = pytest.mark.extended

CHANNEL = rr("0:50", epsilon=18.0, cuts=tuple(range(1, 51)))  # hardly any noise, so that fits can be judged
SKIPPED = {"check_array_api_input"}


class Told(LabelDPRegressor):
    """Rows get their numbers as ids, and y, rounded into 0:50, comes as a message."""

    def fit(self, X: Any, y: Any = None) -> Told:
        X, y = validate_data(self, X, y, y_numeric=True, ensure_all_finite="allow-nan")
        spread = float(np.ptp(y)) or 1.0
        ids = [f"{at:06d}" for at in range(len(X))]
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            path, sender = Path(folder) / "m.parquet", Sender(SigningKey.generate())
            labels = np.clip(np.round((y - y.min()) / spread * 50.0), 0, 50)
            sender.write(path, ids, labels, CHANNEL, epsilon="18", seed=1, epsilon_lifetime="18")
            options = self.get_params() | {"messages": [path], "labels_key": sender.key.public, "id_column": "id"}
            fitted = LabelDPRegressor(**options).fit(framed(X).append_column("id", pa.array(ids)))
        kept = ("feature_names_in_", "n_features_in_")
        self.__dict__ |= {k: v for k, v in vars(fitted).items() if k.endswith("_") and k not in kept}
        self._threads, self._ends = 1, (float(y.min()), spread)
        return self

    def predict(self, X: Any) -> Any:
        check_is_fitted(self, "model_")
        found = super().predict(framed(validate_data(self, X, reset=False, ensure_all_finite="allow-nan")))
        return self._ends[0] + self._ends[1] / 50.0 * found


def framed(X: Any) -> pa.Table:
    return pa.table({f"x{at}": np.asarray(X)[:, at].astype(np.float64) for at in range(np.asarray(X).shape[1])})


def checks(estimator: Any) -> list[Any]:
    found = estimator_checks.estimator_checks_generator(estimator)
    return [
        pytest.param(one, check, id=check.func.__name__) for one, check in found if check.func.__name__ not in SKIPPED
    ]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEATURES_PARTY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FEATURES_PARTY_THREADS", "1")


@pytest.mark.parametrize(("estimator", "check"), checks(Told(model="linear")))
def test_scikit_learn_finds_nothing_wrong(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


WITHOUT_DATA = {
    *("check_estimator_cloneable", "check_estimator_tags_renamed", "check_valid_tag_types", "check_estimator_repr"),
    *(
        "check_no_attributes_set_in_init",
        "check_estimators_unfitted",
        "check_do_not_raise_errors_in_init_or_set_params",
    ),
    *("check_mixin_order", "check_parameters_default_constructible", "check_get_params_invariance", "check_set_params"),
}


def test_the_classifier_is_one_of_scikit_learn() -> None:
    """Its base is the same; here are the checks of its own parameters, tags and messages."""
    seen = set()
    for estimator, check in estimator_checks.estimator_checks_generator(LabelDPClassifier()):
        if check.func.__name__ in WITHOUT_DATA:
            seen.add(check.func.__name__)
            check(estimator)
    assert seen == WITHOUT_DATA
