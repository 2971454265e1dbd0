"""Cells of the peers' table: one peer (or what anybody learns from one message) on one split, at its best settings."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from features_party.training.capacity import choose_capacity
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms.prior import estimate_prior, prior_epsilon
from tests.benchmarks.utility import training
from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.conversions import INCOME, income, learned, seen, some
from tests.benchmarks.utility.message import draw, make_message
from tests.benchmarks.utility.peers import block_rr, boosters, lp_mst, noisy_gradients, rp_with_prior
from tests.benchmarks.utility.peers.boosters import QUICK_SIZES, SIZES, Size
from tests.benchmarks.utility.peers.coded import MOST_COLUMNS_CROSSED, Coded, one_hot
from tests.benchmarks.utility.peers.judged import HIGHER, Best, judge
from tests.benchmarks.utility.sources import FIGURES, Split, split
from tests.support.real_data import DATA, ID
from tests.support.training import fit

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
# (setting, rows of the training data, their private labels): one release at one choice of the method's parameters
Release = tuple[str, IntArray, FloatArray]
Models = Iterator[
    tuple[str, Callable[[], FloatArray]]
]  # (setting, its predictions of the test rows once they are asked)

EDUCATION = "education"  # the several-class task: 17 levels of the census
CLASS_ROWS = 40_000
STAND_IN = 12_000
QUICK = "quick"
CAPACITIES = tuple(4.0**power for power in (-2, -1, 0, 1, 2))  # as in the gap table
CLASS_SIZES, CLASS_ROUNDS = (Size(3, 30), Size(6, 10)), 100
STAGES = (1, 2, 4)
SCREENED = 50_000  # rows on which the settings of a randomizer are compared
MESSAGE, PUBLISHED, LP_MST, NOISY = "message", "published", "lp-mst", "noisy-gradients"
RP_WITH_PRIOR, BLOCK_RR = "rp-with-prior", "block-rr"
NEAR, NUMBER = "near", re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
SHARES = ("auto", "1/10", "1/3")  # of ε for RPWithPrior's prior: the service's own, two more; the notebooks have 1/3


def peers(cell: Cell) -> dict[str, Any]:
    """Test figures at the best of the peer's settings, and which these were. A cell's learner is "message OURS …",
    "published" or the peer's name; after it may come "quick" (one small setting). The option "near" names settings:
    those that are nearest to them are the only ones that are tried."""
    data, (peer, *words) = data_of(cell), cell.learner.split()
    if peer == MESSAGE:
        return _facts(data) | _message(cell, data, words)
    found = Best(data.domain, data.test_labels)
    how = {
        PUBLISHED: _published,
        LP_MST: _lp_mst,
        NOISY: _noisy,
        RP_WITH_PRIOR: _rp_with_prior,
        BLOCK_RR: _block_rr,
    }
    models = how[peer](cell, data, QUICK in words)
    near = json.loads(cell.options).get(NEAR)
    for setting, predictions in models if near is None else nearest(dict(models), near).items():
        found.see(setting, predictions())
    return _facts(data) | found.as_json()


def nearest(models: Mapping[str, Any], near: list[str]) -> dict[str, Any]:
    """Those of `models`, by setting, whose numbers are nearest to those of each of the settings `near`: on another
    split the same rule of a setting may give another number."""

    def distance(one: str, other: str) -> float:
        if NUMBER.sub("", one) != NUMBER.sub("", other):
            return math.inf
        pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
        return sum(abs(math.log((float(a) + 1e-9) / (float(b) + 1e-9))) for a, b in pairs)

    return {one: models[one] for one in {min(models, key=lambda name: distance(name, other)) for other in near}}


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


def _published(cell: Cell, data: Split, quick: bool) -> Models:
    """Outputs of the cell's mechanism as labels, without correction: as RR-on-Bins and its like were published. Models
    of numbers and of two values are trees under the squared loss; labels of classes take a classifier."""
    message = make_message(cell, data)
    outputs = draw(message, data)
    labels, every = message.channel.outputs[outputs], np.arange(data.n)
    if data.domain.nominal or cell.mechanism == "rr-with-prior":
        coded = Coded.of(data.features, data.test_features)
        for size in QUICK_SIZES if quick else CLASS_SIZES:
            yield str(size), partial(_classified, data, coded, every, labels, size)
        return
    for capacity in CAPACITIES[2:3] if quick else CAPACITIES:
        yield f"{capacity:g} × rows", partial(_regressed, data, every, labels, capacity)


def _classified(data: Split, coded: Coded, rows: IntArray, labels: FloatArray, size: Size) -> FloatArray:
    """Probabilities of the test rows; of two values those of the larger one."""
    _, test = boosters.classifier(coded, rows, labels.astype(np.int64), data.domain.k, size, CLASS_ROUNDS)
    return test if data.domain.nominal else test[:, 1]


def _regressed(data: Split, rows: IntArray, labels: FloatArray, capacity: float) -> FloatArray:
    """Predictions of the test rows by trees under the data's loss, of two values under the squared one."""
    features = data.features if len(rows) == data.n else data.features.take(rows)
    span = float(data.domain.values[-1] - data.domain.values[0])
    found = fit(
        features,
        labels,
        domain=data.domain,
        model="ensemble",
        loss=data.loss if _numbers(data) else "squared",
        capacity=choose_capacity(len(rows), float(np.var(labels)), 0.0, span).scaled(capacity),
        threads=1,
    )
    return np.asarray(found.predict(data.test_features, threads=1), np.float64)


def _rp_with_prior(cell: Cell, data: Split, quick: bool) -> Models:
    yield from _of_releases(cell, data, _intervals(cell, data, quick), quick)


def _intervals(cell: Cell, data: Split, quick: bool) -> Iterator[Release]:
    domain, rng, epsilon = data.domain, np.random.default_rng(), Epsilon.parse(cell.epsilon)
    counts, span = np.bincount(data.index, minlength=domain.k), float(domain.values[-1] - domain.values[0])
    for share in SHARES[:1] if quick else SHARES:
        rule = share if share == "auto" else Epsilon.round_down(epsilon.fraction * Fraction(share))
        plan = prior_epsilon(rule, k=domain.k, n=data.n, epsilon=epsilon, from_zero=domain.from_zero)
        prior = estimate_prior(counts, plan.epsilon, plan.cells)
        left = float(epsilon - plan.epsilon)
        for reach in rp_with_prior.REACHES[1:2] if quick else rp_with_prior.REACHES:
            channel = rp_with_prior.most_often_near(domain.values, prior, reach * span, left)
            labels = channel.draw(data.truth, rng)
            yield f"δ {channel.reach:.4g}, ε for the prior {plan.epsilon}", np.arange(data.n), labels


def _block_rr(cell: Cell, data: Split, quick: bool) -> Models:
    yield from _of_releases(cell, data, _blocks(cell, data, quick), quick)


def _blocks(cell: Cell, data: Split, quick: bool) -> Iterator[Release]:
    """σ and ℓ that make the same blocks of labels are one setting."""
    k, rng, epsilon = data.domain.k, np.random.default_rng(), float(cell.epsilon)
    for part in block_rr.PARTS[1:] if quick else block_rr.PARTS:
        mixed = rng.permutation(data.n)
        cut = max(1, round(part * data.n))
        rows = np.sort(mixed[cut:])
        prior, tried = block_rr.counted(data.index[mixed[:cut]], k, epsilon, rng), set()
        for sigma in block_rr.SIGMAS[1:2] if quick else block_rr.SIGMAS:
            first = block_rr.frequent(prior, sigma)
            for most in (1,) if quick else (1, k):
                chosen = block_rr.favoured(prior, first, most)
                blocks = (first.tobytes(), b"" if first.all() else chosen.tobytes())  # of all, none is favoured
                if blocks not in tried:
                    tried.add(blocks)
                    outputs = block_rr.drawn(block_rr.channel(first, chosen, epsilon), data.index[rows], rng)
                    yield f"σ {sigma:g}, ℓ {int(chosen.sum())}, part {part:g}", rows, data.domain.values[outputs]


def _of_releases(cell: Cell, data: Split, releases: Iterator[Release], quick: bool) -> Models:
    """Models of every size of one release: of the one from which, at one size and on some of its rows, the best model
    by test labels is learned. Every release at every size would take a day; where the settings are known, all are
    given."""
    learn, first, sizes = _learners(data)
    if NEAR in json.loads(cell.options):
        for setting, rows, labels in releases:
            for size in sizes:
                yield f"{setting}, {size}", partial(learn, rows, labels, size)
        return
    best: tuple[float, Release] | None = None
    for setting, rows, labels in releases:
        some = np.sort(np.random.default_rng(0).permutation(len(rows))[:SCREENED])
        figures = judge(data.domain, learn(rows[some], labels[some], first), data.test_labels)
        name = FIGURES.get(data.name, next(iter(figures)))
        value = figures[name] if name in HIGHER else -figures[name]
        if best is None or value > best[0]:
            best = value, (setting, rows, labels)
    assert best is not None
    setting, rows, labels = best[1]
    for size in (first,) if quick else sizes:
        yield f"{setting}, {size}", partial(learn, rows, labels, size)


Learn = Callable[[IntArray, FloatArray, Any], FloatArray]


def _learners(data: Split) -> tuple[Learn, Any, tuple[Any, ...]]:
    """How private labels are learned from, at which size releases are compared, and all sizes."""
    if _numbers(data):
        return lambda rows, labels, capacity: _regressed(data, rows, labels, capacity), 1.0, CAPACITIES
    coded = Coded.of(data.features, data.test_features)
    return lambda rows, labels, size: _classified(data, coded, rows, labels, size), CLASS_SIZES[0], CLASS_SIZES


def _lp_mst(cell: Cell, data: Split, quick: bool) -> Models:
    coded, k = Coded.of(data.features, data.test_features), data.domain.k
    rng = np.random.default_rng()

    def predicted(stages: int, train: lp_mst.Trainer) -> FloatArray:
        *_, test = lp_mst.multi_stage(data.index, k, float(cell.epsilon), stages, train, rng)
        return np.asarray(test if data.domain.nominal else test[:, 1], np.float64)

    for size in QUICK_SIZES if quick else CLASS_SIZES:

        def train(
            rows: npt.NDArray[np.int64], labels: npt.NDArray[np.int64], size: Size = size
        ) -> tuple[FloatArray, FloatArray]:
            return boosters.classifier(coded, rows, labels, k, size, CLASS_ROUNDS)

        for stages in STAGES[1:2] if quick else STAGES:
            yield f"{stages} stages, {size}", partial(predicted, stages, train)


def _noisy(cell: Cell, data: Split, quick: bool) -> Models:
    coded, rng = Coded.of(data.features, data.test_features), np.random.default_rng()
    t, sensitivity = noisy_gradients.targets(data.domain, data.truth)
    penalties = noisy_gradients.PENALTIES[::3] if quick else noisy_gradients.PENALTIES
    few = coded.train.shape[1] <= MOST_COLUMNS_CROSSED
    for crossed in (False, True) if few and not quick else (False,):
        train, test = one_hot(coded, crossed)
        shaped = not quick and train.shape[1] <= noisy_gradients.MOST_SHAPED
        for shape in noisy_gradients.SHAPES if shaped else (0.0,):
            noisy = noisy_gradients.released(train, t, sensitivity, float(cell.epsilon), rng, shape)
            makers = [noisy_gradients.models, *([noisy_gradients.log_linear] if data.loss == "poisson" else [])]
            for setting, predictions in (
                one for make in makers for one in make(data.domain, train, noisy, test, penalties)
            ):
                columns = "pairs of columns" if crossed else "columns"
                yield f"{columns}, μ {shape:g}, {setting}", partial(np.asarray, predictions)
