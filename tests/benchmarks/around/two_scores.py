"""What a calibration of two scores (`--score-2-column`) gives over one of one score, at equal ε.

A message of three quarters of the rows at ε, of RR-on-Bins labels as drawn, trains the models; the other quarter
calibrates at ε (two batches without a common example). Scores are
- `two models`: predictions of two models, each of every other feature, as two publishers would have them;
- `model and price`: predictions of a model that does not know the price of an item, and that price.

`mse` is of the test set over the error of the best constant, behind straight lines (`--interpolate`), of the first and
of the second score with no map, behind a map of either alone and of their mean, and behind maps of both: by
noisy sums (`bins`, the default, as are the maps of one score) and by Algorithm 3 (`grid`). For a price, which is
on no label's scale, there are neither of the score itself nor of a mean.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.privacy import Epsilon
from tests.benchmarks.around.calibration import SHARE, Data, map_of, model_of, spread
from tests.support.real_data import census, retail

FloatArray = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

EPSILONS = ("0.5", "1", "2")
GRIDS = ("5x5", "8x8", "19x5")
LABELS = "rr-on-bins"
PRICE = "unit_price_gbp"
TWO_MODELS, PRICED = "two models", "model and price"


@dataclass(frozen=True)
class Result:
    data: str
    scores: str
    epsilon: str
    seed: int
    way: str
    mse: float


@dataclass(frozen=True)
class Two:
    """Scores float64[n] of the rows that calibrate, and of the test set; how many of the two are predictions."""

    own: tuple[FloatArray, FloatArray]
    test: tuple[FloatArray, FloatArray]
    predictions: int


def two_models(data: Data, kept: Rows, own: Rows, epsilon: Epsilon) -> Two:
    names, scores = data.features.column_names, []
    for half in (names[0::2], names[1::2]):
        part = replace(data, features=data.features.select(half), test=data.test.select(half))
        model = model_of(part, kept, LABELS, epsilon)
        scores.append((model.predict(part.features.take(own)), model.predict(part.test)))
    (a, b), (c, d) = scores
    return Two((a, c), (b, d), 2)


def priced(data: Data, kept: Rows, own: Rows, epsilon: Epsilon) -> Two:
    part = replace(data, features=data.features.drop_columns([PRICE]), test=data.test.drop_columns([PRICE]))
    model = model_of(part, kept, LABELS, epsilon)
    price = [table[PRICE].to_numpy().astype(np.float64) for table in (data.features.take(own), data.test)]
    return Two((model.predict(part.features.take(own)), price[0]), (model.predict(part.test), price[1]), 1)


def lines_of(shape: str, data: Data, own: Rows, scores: Any, epsilon: Epsilon, **options: Any) -> Any:
    return replace(map_of(shape, data, own, list(scores), epsilon, **options), interpolate=True)


def ways(data: Data, own: Rows, two: Two, epsilon: Epsilon) -> Iterator[tuple[str, FloatArray]]:
    """Predictions for the test set, by the name of what made them."""
    names = ("first", "second")
    singles = dict(zip(names, zip(two.own, two.test, strict=True), strict=True))
    for name in names[: two.predictions]:
        yield name, singles[name][1]
    if two.predictions == 2:
        singles["mean"] = sum(two.own) / 2, sum(two.test) / 2
    for name, (calibrating, test) in singles.items():
        yield f"map of {name}", lines_of("bins", data, own, [calibrating], epsilon).apply(test)
    yield "bins", lines_of("bins", data, own, two.own, epsilon).apply(*two.test)
    for cells in GRIDS:
        yield f"grid {cells}", lines_of("grid", data, own, two.own, epsilon, cells=cells).apply(*two.test)


def measured(data: Data, scores: str, text: str, seed: int) -> Iterator[Result]:
    order, epsilon = np.random.default_rng(seed + 1000).permutation(data.labels.size), Epsilon.parse(text)
    own, kept = order[: order.size // SHARE], order[order.size // SHARE :]
    two = (priced if scores == PRICED else two_models)(data, kept, own, epsilon)
    variance = float(np.var(data.truth))
    for way, found in ways(data, own, two, epsilon):
        yield Result(data.name, scores, text, seed, way, float(np.mean((found - data.truth) ** 2)) / variance)


def run(out: Path, quick: bool) -> None:
    """Write two-scores.csv and two-scores.md."""
    rows, results = 4_000 if quick else 32_000, []
    for seed in range(1 if quick else 2):
        for data in (Data.of(task(seed), rows, seed) for task in (census, retail)):
            for scores in (TWO_MODELS, PRICED) if PRICE in data.features.column_names else (TWO_MODELS,):
                for epsilon in EPSILONS[1:2] if quick else EPSILONS:
                    results += measured(data, scores, epsilon, seed)
    with (out / "two-scores.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(asdict(results[0])))
        writer.writeheader()
        writer.writerows({**asdict(row), "mse": f"{row.mse:.6g}"} for row in results)
    text = "\n".join([*lines(results, rows), ""])
    (out / "two-scores.md").write_text(text, encoding="utf-8")
    print(text)


def lines(results: list[Result], rows: int) -> Iterator[str]:
    assert __doc__ is not None
    yield from ("# Two scores", "", __doc__.strip(), "")
    yield from (f"At most {rows:,} training rows, mean over seeds ± standard error; made by `make around`.", "")
    heads = (
        "first",
        "second",
        "map of first",
        "map of second",
        "map of mean",
        "bins",
        *(f"grid {cells}" for cells in GRIDS),
    )
    yield f"| data | scores | ε | {' | '.join(heads)} |"
    yield "|---" * (3 + len(heads)) + "|"
    for key in dict.fromkeys((r.data, r.scores, r.epsilon) for r in results):
        own = [r for r in results if (r.data, r.scores, r.epsilon) == key]
        found = {way: [r.mse for r in own if r.way == way] for way in heads}
        yield f"| {' | '.join(key)} | " + " | ".join(spread(v) if v else "" for v in found.values()) + " |"
