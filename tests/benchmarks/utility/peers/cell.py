"""Cells of the peers' table: one peer (or what anybody learns from one message) on one split, at its best settings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from label_dp.domain import Domain
from tests.benchmarks.utility import training
from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.conversions import INCOME, income, learned, seen, some
from tests.benchmarks.utility.message import draw, make_message
from tests.benchmarks.utility.peers import boosters, noisy_gradients
from tests.benchmarks.utility.peers.boosters import QUICK_SIZES, SIZES, Size
from tests.benchmarks.utility.peers.coded import MOST_COLUMNS_CROSSED, Coded, one_hot
from tests.benchmarks.utility.peers.judged import Best, judge
from tests.benchmarks.utility.peers.lp_mst import multi_stage
from tests.benchmarks.utility.sources import Split, split
from tests.support.real_data import DATA, ID
from tests.support.training import fit

FloatArray = npt.NDArray[np.float64]

EDUCATION = "education"  # the several-class task: 17 levels of the census
CLASS_ROWS = 40_000
STAND_IN = 12_000
QUICK = "quick"
CAPACITIES = tuple(4.0**power for power in (-2, -1, 0, 1, 2))  # as in the gap table
CLASS_SIZES, CLASS_ROUNDS = (Size(3, 30), Size(6, 10)), 100
STAGES = (1, 2, 4)
MESSAGE, PUBLISHED, LP_MST, NOISY = "message", "published", "lp-mst", "noisy-gradients"


def peers(cell: Cell) -> dict[str, Any]:
    """Test figures at the best of the peer's settings, and which these were. A cell's learner is "message OURS …",
    "published", "lp-mst" or "noisy-gradients"; after it may come "quick" (one small setting)."""
    data, (peer, *words) = data_of(cell), cell.learner.split()
    if peer == MESSAGE:
        return _facts(data) | _message(cell, data, words)
    found = Best(data.domain, data.test_labels)
    how = {PUBLISHED: _published, LP_MST: _lp_mst, NOISY: _noisy}
    for setting, predictions in how[peer](cell, data, QUICK in words):
        found.see(setting, predictions)
    return _facts(data) | found.as_json()


def data_of(cell: Cell) -> Split:
    if cell.data == INCOME:
        return some(income(cell.seed), cell.rows)
    return education(cell.seed, cell.rows) if cell.data == EDUCATION else split(cell.data, cell.seed, cell.rows)


@lru_cache(maxsize=2)
def education(seed: int, rows: int = 0) -> Split:
    """Levels of education in the census, by name; at random 40,000 rows (or `rows`) to train, as many for the test."""
    path = DATA / "census_income_kdd.parquet"
    real = path.exists()
    if real:
        table = pq.read_table(path).drop_columns(["instance_weight", ID])
        names = sorted(set(table[EDUCATION].to_pylist()))
        labels = np.searchsorted(np.array(names), table[EDUCATION].to_numpy(zero_copy_only=False).astype(str))
        table = table.drop_columns([EDUCATION])
    else:
        source = income(seed)
        table, names = source.features, ["low", "middle", "high"]
        rng = np.random.default_rng(seed)
        labels = np.clip(np.round(table["age"].to_numpy() + 0.5 * rng.normal(size=table.num_rows) + 1), 0, 2).astype(
            int
        )
    most = rows or CLASS_ROWS
    order = np.random.default_rng(seed).permutation(table.num_rows)
    train, test = np.sort(order[: min(most, len(order) // 2)]), np.sort(order[len(order) // 2 :][:most])
    domain = Domain.from_names(names)
    index = labels.astype(np.int64)
    return Split(
        EDUCATION,
        domain,
        "log",
        real,
        table.take(train),
        index[train],
        domain.values[index[train]],
        table.take(test),
        domain.values[index[test]],
    )


def _facts(data: Split) -> dict[str, Any]:
    constant = data.histogram if data.domain.nominal else data.truth.mean()
    shown = np.broadcast_to(constant, (len(data.test_labels), *np.shape(constant))).astype(np.float64)
    facts = {"rows": data.n, "test_rows": len(data.test_labels), "real": data.real}
    return facts | {f"constant_{k}": v for k, v in judge(data.domain, shown, data.test_labels).items()}


def _numbers(data: Split) -> bool:
    return not data.domain.nominal and data.domain.k > 2


def _message(cell: Cell, data: Split, words: list[str]) -> dict[str, Any]:
    """One draw of `auto`; the service's model and other learners on it. Each has its name before its figures."""
    ours, libraries = words[0], words[1:]
    began = time.perf_counter()
    if _numbers(data):
        facts, labels, noise, unbiased, cells = training.labels_of(cell, data)
        predictions = training.fitted(replace(cell, learner=ours), data, labels, noise, unbiased, cells)
        chosen = facts["chosen"]
    else:
        known = seen(cell, data)
        labels, chosen = known.labels, known.message.mechanism
        predictions = learned(data, "trees" if ours == QUICK else "ensemble", "log", known)
    result: dict[str, Any] = {"ours": judge(data.domain, predictions, data.test_labels), "chosen": chosen}
    result["seconds_ours"] = round(time.perf_counter() - began, 1)
    if data.domain.nominal:
        return result  # corrected labels of classes are no labels of one model
    coded = Coded.of(data.features, data.test_features)
    for name in libraries:
        found = Best(data.domain, data.test_labels)
        library = {"lightgbm": boosters.lightgbm, "xgboost": boosters.xgboost}[name]
        for setting, predictions in library(coded, labels, QUICK_SIZES if ours == QUICK else SIZES):
            found.see(setting, predictions)
        result[name] = found.as_json()
    return result


def _published(cell: Cell, data: Split, quick: bool) -> Iterator[tuple[str, FloatArray]]:
    """Outputs of the cell's mechanism as labels, without correction: as RR-on-Bins and its like were published. Models
    of numbers and of two values are trees under the squared loss; labels of classes take a classifier."""
    message = make_message(cell, data)
    outputs = draw(message, data)
    if data.domain.nominal or cell.mechanism == "rr-with-prior":
        coded, every = Coded.of(data.features, data.test_features), np.arange(data.n)
        values = message.channel.outputs[outputs].astype(np.int64)
        for size in QUICK_SIZES if quick else CLASS_SIZES:
            _, test = boosters.classifier(coded, every, values, data.domain.k, size, CLASS_ROUNDS)
            yield str(size), test if data.domain.nominal else test[:, 1]
        return
    labels = message.channel.outputs[outputs]
    ruled = training.ruled(data, labels, 0.0)
    for capacity in CAPACITIES[2:3] if quick else CAPACITIES:
        found = fit(
            data.features,
            labels,
            domain=data.domain,
            model="ensemble",
            capacity=ruled.scaled(capacity),
            threads=1,
        )
        yield f"{capacity:g} × rows", np.asarray(found.predict(data.test_features, threads=1), np.float64)


def _lp_mst(cell: Cell, data: Split, quick: bool) -> Iterator[tuple[str, FloatArray]]:
    coded, k = Coded.of(data.features, data.test_features), data.domain.k
    rng = np.random.default_rng()
    for size in QUICK_SIZES if quick else CLASS_SIZES:

        def train(
            rows: npt.NDArray[np.int64], labels: npt.NDArray[np.int64], size: Size = size
        ) -> tuple[FloatArray, FloatArray]:
            return boosters.classifier(coded, rows, labels, k, size, CLASS_ROUNDS)

        for stages in STAGES[1:2] if quick else STAGES:
            *_, test = multi_stage(data.index, k, float(cell.epsilon), stages, train, rng)
            yield f"{stages} stages, {size}", test if data.domain.nominal else test[:, 1]


def _noisy(cell: Cell, data: Split, quick: bool) -> Iterator[tuple[str, FloatArray]]:
    coded, rng = Coded.of(data.features, data.test_features), np.random.default_rng()
    t, sensitivity = noisy_gradients.targets(data.domain, data.truth)
    penalties = noisy_gradients.PENALTIES[::3] if quick else noisy_gradients.PENALTIES
    few = coded.train.shape[1] <= MOST_COLUMNS_CROSSED
    for crossed in (False, True) if few and not quick else (False,):
        train, test = one_hot(coded, crossed)
        shaped = not quick and train.shape[1] <= noisy_gradients.MOST_SHAPED
        for shape in noisy_gradients.SHAPES if shaped else (0.0,):
            noisy = noisy_gradients.released(train, t, sensitivity, float(cell.epsilon), rng, shape)
            for setting, predictions in noisy_gradients.models(data.domain, train, noisy, test, penalties):
                yield f"{'pairs of columns' if crossed else 'columns'}, μ {shape:g}, {setting}", predictions
