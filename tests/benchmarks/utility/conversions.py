"""Cells of labels of two values: incomes over 50,000 dollars of the census, and generated clicks that rarely convert.

A message is made as everywhere; a model sees it as likelihood through its channel ("… log") or as corrected labels
("… squared"), and true labels of rows that nobody trained on judge it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from features_party.training.class_likelihood import ClassLikelihood
from features_party.training.correction import correct
from features_party.training.likelihood import RowLikelihood
from features_party.training.probabilities import Probabilities, judge
from features_party.training.ranking import auc
from label_dp.channels.rr import RRChannel
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.message.preview import worth
from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.message import Message, draw, make_message
from tests.benchmarks.utility.sources import Split
from tests.support.real_data import DATA, ID
from tests.support.training import fit

FloatArray = npt.NDArray[np.float64]
Fitted = tuple[FloatArray, dict[str, Any]]

INCOME, CLICKS = "income", "clicks"
TWO = Domain.parse("0:1")
TRAINED_ON = 160_000  # the rest is the test
STAND_IN = 12_000
RATE = "0.001"  # of clicks that convert
WEIGHTS = np.array([0.9, 0.6, -0.4, 0.0])  # of a click's four features, in log-odds
TEST_CLICKS = 1_000_000


def conversions(cell: Cell) -> dict[str, Any]:
    """Test figures of a model of incomes as probabilities."""
    data = some(income(cell.seed), cell.rows)
    predictions, facts = _fitted(cell, data)
    found = judge(predictions, float(data.truth.mean()), data.test_labels, np.arange(len(data.test_labels)))
    assert isinstance(found, Probabilities)
    assert found.auc is not None
    return facts | {
        "auc": found.auc.estimate,
        "log_loss": found.log_loss.estimate,
        "constant_log_loss": found.constant_log_loss.estimate,
        "brier": found.brier.estimate,
    }


def rare(cell: Cell) -> dict[str, Any]:
    """What is learnt of clicks that rarely convert, beside what a plan says before anything is spent."""
    test_rows = min(TEST_CLICKS, 20 * cell.rows)
    data = clicks(cell.seed, cell.rows, test_rows)
    predictions, facts = _fitted(cell, data)
    test, every = data.test_labels, np.arange(test_rows)
    found = auc(predictions, test, every)
    told = facts.pop("worth")
    return facts | {
        "auc": found.estimate,
        "auc_error": found.standard_error,
        "best_auc": auc(_scores(data.test_features), test, every).estimate,
        "positives": int(data.truth.sum()),
        "positives_without_noise": told["rarer_without_noise"],
        "too_few": told["too_few"],
    }


@lru_cache(maxsize=2)
def income(seed: int) -> Split:
    """Census income over 50,000 dollars, all columns but the survey weight; 160,000 rows at random to train on."""
    path = DATA / "census_income_kdd.parquet"
    real = path.exists()
    table = pq.read_table(path).drop_columns(["instance_weight", ID]) if real else _stand_in()
    order = np.random.default_rng(seed).permutation(table.num_rows)
    cut = TRAINED_ON if real else 3 * STAND_IN // 4
    return _split(INCOME, real, table, np.sort(order[:cut]), np.sort(order[cut:]))


def clicks(seed: int, rows: int, test_rows: int) -> Split:
    """Generated: one byte for a feature, so that 10⁷ rows of four take 40 MB."""
    rng = np.random.default_rng([11, seed])
    names = [f"x{at}" for at in range(len(WEIGHTS))]
    table = pa.table({name: rng.integers(-3, 4, rows + test_rows, dtype=np.int8) for name in names})
    score = _scores(table)
    low, high = -40.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.mean(_share(middle + score)) < float(RATE) else (low, middle)
    label = (rng.random(len(score)) < _share(low + score)).astype(np.int8)
    return _halves(CLICKS, False, table, label, rows)


@dataclass(frozen=True)
class Seen:
    """What a features party sees of one message: labels as corrected float64[n], and their likelihood (`told`)."""

    labels: FloatArray
    noise: float
    unbiased: bool
    told: RowLikelihood | ClassLikelihood
    message: Message


def seen(cell: Cell, data: Split) -> Seen:
    """Labels of two values or of classes, which the cell's mechanism made private; one draw."""
    message = make_message(cell, data)
    channel, outputs = message.channel, draw(message, data).astype(np.int16)  # subsets are more than 127
    none = np.zeros(data.n, np.int8)
    if data.domain.nominal:
        classes = ClassLikelihood.through([channel], none, outputs, channel.domain, message.prior)
        return Seen(channel.outputs[outputs], 0.0, True, classes, message)
    correction = correct(channel, "auto", message.prior, np.bincount(outputs, minlength=channel.m) / data.n, data.n)
    told = RowLikelihood.through([channel], none, outputs)
    return Seen(correction.corrected[outputs], correction.noise_variance, correction.comparable, told, message)


def learned(data: Split, model: str, loss: str, known: Seen | None, capacity: float = 1.0) -> FloatArray:
    """Predictions of the test rows by a model of what is `known` of the labels; None: the labels themselves.

    `capacity` scales the effective rows that the size of a quick learner is chosen for.
    """
    ruled = None
    if capacity != 1.0:
        certain = known.told if known else RowLikelihood.certain(data.truth, (0.0, 1.0))
        ruled = certain.capacity().scaled(capacity)
    found = fit(
        data.features,
        known.labels if known else data.truth,
        noise_variance=known.noise if known else 0.0,
        domain=data.domain,
        model=model,
        loss=loss,
        unbiased=known.unbiased if known else True,
        told=known.told if known and loss == "log" else None,
        capacity=ruled,
        threads=1,
    )
    return np.asarray(found.predict(data.test_features, threads=1), np.float64)


def _fitted(cell: Cell, data: Split) -> Fitted:
    model, loss = cell.learner.split()
    known, facts = None, {"chosen": "none"}
    if cell.private:
        known = seen(cell, data)
        split = known.message.plan.split
        facts = {"chosen": known.message.mechanism, "epsilon": split.as_json()}
        if cell.kind == "rare":
            channel = known.message.channel
            assert isinstance(channel, RRChannel)
            wanted = worth(channel, data.n, Epsilon.parse(cell.epsilon), split, (RATE,), TWO.value(1))
            facts["worth"] = wanted["rates"][0]
    facts |= {"rows": data.n, "test_rows": len(data.test_labels), "real": data.real}
    return learned(data, model, loss, known, cell.capacity), facts


def _split(name: str, real: bool, table: pa.Table, train: npt.NDArray[np.int64], test: npt.NDArray[np.int64]) -> Split:
    label = table["income_over_50k"].to_numpy().astype(np.int8)
    both = np.concatenate([train, test])
    return _halves(name, real, table.drop_columns(["income_over_50k"]).take(both), label[both], len(train))


def _halves(name: str, real: bool, features: pa.Table, label: npt.NDArray[np.int8], rows: int) -> Split:
    truth = label.astype(np.float64)
    return Split(
        name,
        TWO,
        "log",
        real,
        features.slice(0, rows),
        label[:rows].astype(np.int64),
        truth[:rows],
        features.slice(rows),
        truth[rows:],
    )


def some(data: Split, most: int) -> Split:
    """The first rows, which are in no order."""
    if not most or data.n <= most:
        return data
    table = pa.concat_tables([data.features.slice(0, most), data.test_features])
    label = np.concatenate([data.truth[:most], data.test_labels]).astype(np.int8)
    return _halves(data.name, data.real, table, label, most)


def _scores(table: pa.Table) -> FloatArray:
    """Log-odds, less the intercept."""
    found = np.zeros(table.num_rows)
    for weight, name in zip(WEIGHTS, table.column_names, strict=True):
        found += weight * table[name].to_numpy()
    return found


def _share(score: FloatArray) -> FloatArray:
    return np.asarray(1.0 / (1.0 + np.exp(-score)), np.float64)


def _stand_in() -> pa.Table:
    """It only tests the path."""
    rng = np.random.default_rng(21)
    x, group = rng.normal(size=STAND_IN), rng.integers(0, 3, STAND_IN)
    label = rng.random(STAND_IN) < _share(-3.0 + 1.5 * x + 0.5 * group)
    return pa.table({"age": x, "group": np.array(["a", "b", "c"])[group], "income_over_50k": label.astype(np.int8)})
