"""LightGBM and XGBoost as anybody would take them: on corrected labels under the squared loss, and as classifiers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module

import numpy as np
import numpy.typing as npt

from tests.benchmarks.utility.peers.coded import Coded

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
RATE = 0.1


@dataclass(frozen=True)
class Size:
    """Trees of a depth (XGBoost) or 2^depth − 1 leaves (LightGBM), each leaf of at least so many rows."""

    depth: int
    leaf: int

    def __str__(self) -> str:
        return f"depth {self.depth}, leaves of {self.leaf}"


SIZES = (Size(2, 100), Size(3, 1000), Size(5, 20), Size(5, 300), Size(7, 2000))
ROUNDS = (15, 50, 150, 500)  # every model is judged at each
QUICK_SIZES = (Size(3, 20),)


@lru_cache(maxsize=1)
def without_lightgbm() -> str:
    """Why it cannot be used, empty where it can. It is in the extra `peers`, which `make tables` installs."""
    try:
        import_module("lightgbm")
    except ImportError:
        return "it is not installed (extra `peers`)"
    except OSError as missing:  # the wheel needs a system library
        return str(missing)
    return ""


def lightgbm(coded: Coded, labels: FloatArray, sizes: tuple[Size, ...] = SIZES) -> Iterator[tuple[str, FloatArray]]:
    """(setting, predictions of the test rows)"""
    import lightgbm as library

    data = library.Dataset(
        coded.train,
        label=labels,
        categorical_feature=[at for at, category in enumerate(coded.categories) if category],
        params={"verbose": -1, "feature_pre_filter": False},  # sizes of leaves share the data set
    )
    for size in sizes:
        settings = {
            "objective": "regression",
            "learning_rate": RATE,
            "num_leaves": 2**size.depth - 1,
            "min_data_in_leaf": size.leaf,
            "feature_fraction": 0.5,
            "num_threads": 1,
            "seed": 1,
            "verbose": -1,
        }
        model = library.train(settings, data, num_boost_round=max(ROUNDS))
        for rounds in ROUNDS:
            found = model.predict(coded.test, num_iteration=rounds, num_threads=1)
            yield f"{size}, {rounds} rounds", np.asarray(found, np.float64)


def xgboost(coded: Coded, labels: FloatArray, sizes: tuple[Size, ...] = SIZES) -> Iterator[tuple[str, FloatArray]]:
    """(setting, predictions of the test rows)"""
    import xgboost as library

    train, test = _matrix(coded.train, coded, labels), _matrix(coded.test, coded)
    for size in sizes:
        model = library.train(
            _settings(size) | {"objective": "reg:squarederror", "base_score": float(labels.mean())},
            train,
            num_boost_round=max(ROUNDS),
        )
        for rounds in ROUNDS:
            found = model.predict(test, iteration_range=(0, rounds))
            yield f"{size}, {rounds} rounds", np.asarray(found, np.float64)


def classifier(
    coded: Coded, rows: IntArray, labels: IntArray, k: int, size: Size, rounds: int
) -> tuple[FloatArray, FloatArray]:
    """Probabilities float64[n, k] of all training rows and float64[m, k] of the test, learned on some rows."""
    import xgboost as library

    settings = _settings(size) | {"objective": "multi:softprob", "num_class": k}
    model = library.train(settings, _matrix(coded.train[rows], coded, labels), num_boost_round=rounds)
    train, test = (np.asarray(model.predict(_matrix(side, coded)), np.float64) for side in (coded.train, coded.test))
    return train, test


def _settings(size: Size) -> dict[str, object]:
    return {
        "eta": RATE,
        "max_depth": size.depth,
        "min_child_weight": size.leaf,
        "colsample_bytree": 0.5,
        "tree_method": "hist",
        "nthread": 1,
        "seed": 1,
    }


def _matrix(values: npt.NDArray[np.float32], coded: Coded, labels: npt.NDArray[np.generic] | None = None) -> object:
    import xgboost as library

    kinds = ["c" if category else "q" for category in coded.categories]
    return library.DMatrix(values, label=labels, feature_types=kinds, enable_categorical=True, nthread=1)
