"""Cells of several messages: the test error of the model of all of them, and of a model of each alone.

Messages are made and corrected as the features party does; all models of a cell see the same draws, so that "all" and
"alone" differ in what they were given, not in luck.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from features_party.training.correction import correct
from features_party.training.fitting import Examples
from features_party.training.recentring import recentred
from label_dp.domain import Domain
from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.message import draw, make_message
from tests.benchmarks.utility.sources import Split, split
from tests.support.training import fit

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sent:
    """One message: at this ε, by this mechanism, of this share of the examples (others than in the messages before), or
    of all of them. `price` is what its labels are multiplied with; None: there are no days."""

    epsilon: str
    mechanism: str = "auto"
    share: float | None = None
    price: float | None = None


CASES = {
    "one batch at two ε": (Sent("0.5"), Sent("2")),
    "one batch, once weakly": (Sent("0.1"), Sent("2")),
    "four days, drifting prices": (
        Sent("0.5", share=0.25, price=1.0),
        Sent("1", share=0.25, price=1.1),
        Sent("2", share=0.25, price=1.2),
        Sent("1", share=0.25, price=1.3),
    ),
    "three advertisers": (
        Sent("1", "rr-on-bins", 1 / 3),
        Sent("0.5", "one-bit", 1 / 3),
        Sent("2", "discrete-laplace", 1 / 3),
    ),
    "few strong rows, many weak": (Sent("2", share=0.25), Sent("0.05", share=0.75)),
}


@dataclass(frozen=True)
class Received:
    """One message as a trainer sees it: rows of the split, with corrected labels float64[n] and their noise."""

    rows: IntArray
    features: pa.Table
    labels: FloatArray
    noise: float
    comparable: bool
    chosen: str


def combined(cell: Cell) -> dict[str, Any]:
    """Test squared errors; of days those of the last one's prices, which come next."""
    data, sent = split(cell.data, cell.seed, cell.rows), CASES[json.loads(cell.options)["case"]]
    received = _received(cell, data, sent)
    last = len(sent) - 1
    test = _on_day(data.test_features, sent[last], last)
    truth = data.test_labels * (sent[last].price or 1.0)
    truth = np.clip(truth, float(data.domain.values[0]), float(data.domain.values[-1]))
    predictions = [_predictions(cell, several, data.domain, test) for several in (received, *([r] for r in received))]
    every, *alone = (float(np.mean((found - truth) ** 2)) for found in predictions)
    return {
        "mse": every,
        "alone": alone,
        "best_alone": min(alone),
        "difference": every - min(alone),
        "chosen": [one.chosen for one in received],
        "constant_mse": float(np.var(truth)),
        "rows": data.n,
        "test_rows": len(truth),
        "real": data.real,
    }


def _received(cell: Cell, data: Split, sent: tuple[Sent, ...]) -> list[Received]:
    order, begun, found = np.random.default_rng([5, cell.seed]).permutation(data.n), 0.0, []
    for day, one in enumerate(sent):
        share = 1.0 if one.share is None else one.share
        rows = np.sort(order[round(begun * data.n) : round((begun + share) * data.n)])
        begun += 0.0 if one.share is None else share
        found.append(_receive(cell, _part(data, rows, one, day), one, rows))
    return found


def _part(data: Split, rows: IntArray, one: Sent, day: int) -> Split:
    index, _ = data.domain.index(data.truth[rows] * (one.price or 1.0))
    features = _on_day(data.features.take(rows), one, day)
    return replace(data, features=features, index=index, truth=data.domain.values[index])


def _on_day(features: pa.Table, one: Sent, day: int) -> pa.Table:
    if one.price is None:
        return features
    return features.append_column("day", pa.array(np.full(features.num_rows, day, np.float64)))


def _receive(cell: Cell, data: Split, one: Sent, rows: IntArray) -> Received:
    message = make_message(replace(cell, epsilon=one.epsilon, mechanism=one.mechanism, options="{}"), data)
    outputs = draw(message, data)
    shares = np.bincount(outputs, minlength=message.channel.m) / data.n
    correction = correct(message.channel, cell.correction, message.prior, shares, data.n)
    labels = correction.corrected[outputs]
    if correction.comparable and message.plan.cells is not None:
        epsilon, cells = float(str(message.plan.split.prior)), len(message.plan.cells) - 1
        labels = recentred(labels, message.channel.labels, message.prior, epsilon, cells)
    return Received(rows, data.features, labels, correction.noise_variance, correction.comparable, message.mechanism)


def _predictions(cell: Cell, several: list[Received], domain: Domain, test: pa.Table) -> FloatArray:
    given = Examples(
        pa.concat_tables([one.features for one in several]),
        np.concatenate([one.labels for one in several]),
        np.concatenate([np.full(len(one.labels), one.noise) for one in several]),
        domain,
        all(one.comparable for one in several),
        np.concatenate([one.rows for one in several]),
    )
    model = fit(
        given.features,
        given.labels,
        noise_variance=given.noise_variance,
        domain=given.domain,
        unbiased=given.unbiased,
        groups=given.groups,
        model=cell.learner,
        threads=1,
    )
    return np.asarray(model.predict(test, threads=1), np.float64)
