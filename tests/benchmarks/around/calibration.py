"""What a private calibration gives to a model, at equal total ε per example.

Rows of a training set are spent in three ways, every example paying ε in all:
- `all`: one message of all rows at ε, and a model, uncalibrated;
- `disjoint`: a message of three quarters of the rows at ε, a model, and a calibration by the other quarter at ε (two
  batches without a common example, which compose in parallel);
- `split`: a message of all rows at ¾ε, and a calibration by the same rows at ¼ε (sequential composition).
Labels are those of RR-on-Bins as drawn (uncorrected, so the model is biased towards the middle) and of one bit
(corrected, so that the model is not). Boosted trees.

`mse` is of the test set over the error of the best constant; `calibration error` the root mean squared difference of
mean prediction and mean label in 20 bins, over the labels' standard deviation, with what sampling alone would show.
Each is given of the model alone, of the model behind a map of Algorithm 1 (`--shape monotone`), and behind one of noisy
sums of cells (`--shape bins`, the default for means); either with its steps, and with straight lines (`--interpolate`).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from features_party.models.reliability import Reliability, reliability
from features_party.training.correction import correct
from features_party.training.model import TrainedModel
from label_dp.companions.maps.monotone_grid import MonotoneGrid
from label_dp.companions.maps.score_maps import PairMap, ScoreMap
from label_dp.companions.maps.scores import ScoreGrid
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.kinds.calibration.shapes import SHAPES, Terms, fitted
from labels_party.mechanisms.sampling import sample
from labels_party.message.engine import DrawJob, LocalEngine
from labels_party.message.plan import make_plan, resolve
from tests.support.asked import release_wish
from tests.support.asking import population as parse_population
from tests.support.pipeline_audit import Labels
from tests.support.real_data import ID, Task, census, retail
from tests.support.training import fit_and_judge

FloatArray = npt.NDArray[np.float64]

EPSILONS = ("0.5", "1", "2")
SHARE = 4  # one part in so many is for the calibration
LABELS = {"rr-on-bins": "none", "one-bit": "auto"}  # with their corrections
WAYS = ("all", "disjoint", "split")
SHOWN = "1"  # ε of the diagrams
MODEL, *MAPS = ("model", "monotone", "monotone, lines", "bins", "bins, lines")
COLOURS = {MODEL: "#E69F00", "monotone, lines": "#0072B2", "bins, lines": "#009E73"}


@dataclass(frozen=True)
class Result:
    data: str
    labels: str
    way: str
    epsilon: str
    seed: int
    rows: int
    mse: dict[str, float]  # of the model and of each kind of map
    error: dict[str, float]
    floor: float

    def row(self) -> dict[str, str | int]:
        shared: dict[str, str | int] = {"data": self.data, "labels": self.labels, "way": self.way}
        shared |= {"epsilon": self.epsilon, "seed": self.seed, "rows": self.rows, "sampling": f"{self.floor:.6g}"}
        for what, found in (("mse", self.mse), ("error", self.error)):
            shared |= {f"{what} {kind}": f"{value:.6g}" for kind, value in found.items()}
        return shared


@dataclass(frozen=True)
class Data:
    name: str
    domain: Domain
    features: pa.Table
    labels: FloatArray
    test: pa.Table
    truth: FloatArray

    @classmethod
    def of(cls, task: Task, rows: int, seed: int) -> Data:
        domain = Domain.parse(task.domain)
        low, high = float(domain.values[0]), float(domain.values[-1])
        rng = np.random.default_rng(seed)
        parts = [t.take(rng.permutation(t.num_rows)[:rows]) for t in (task.train, task.test)]
        drop = [name for name in task.train.column_names if name in (task.label, ID)]
        labels = [np.clip(np.floor(p[task.label].to_numpy().astype(np.float64)), low, high) for p in parts]
        features = [p.drop_columns(drop) for p in parts]
        name = task.name if task.real else f"{task.name} (a stand-in)"
        return cls(name, domain, features[0], labels[0], features[1], labels[1])


def model_of(data: Data, rows: npt.NDArray[np.int64], mechanism: str, epsilon: Epsilon) -> TrainedModel:
    """A message of these rows, and a model of it: the pipeline's own steps, without files."""
    population = parse_population("benchmark", "label", data.domain, "100")
    plan = make_plan(release_wish(epsilon, mechanism=mechanism), population, rows.size)
    index = data.domain.index(data.labels[rows])[0]
    whole = cast(Any, Labels(index.tolist()))
    job = DrawJob(population, plan, whole, rows.size, 1, None, Path(), 1, lambda _what, _share: None)
    prior = LocalEngine._prior(job)
    channel = resolve(plan, data.domain, prior, rows.size).channel
    bins = sample(channel, index)
    shares = np.bincount(bins, minlength=channel.m) / rows.size
    correction = correct(channel, LABELS[mechanism], prior, shares, rows.size)
    model, _ = fit_and_judge(
        data.features.take(rows),
        correction.corrected[bins],
        noise_variance=correction.noise_variance,
        domain=data.domain,
        model="trees",
    )
    return model


def map_of(
    shape: str, data: Data, rows: npt.NDArray[np.int64], scores: list[FloatArray], epsilon: Epsilon, **options: Any
) -> ScoreMap | PairMap:
    """The map of one score or of two, as the service makes it."""
    grid, axes = ScoreGrid.parse("float32"), SHAPES[shape].axes
    x, n = np.stack([grid.index(s) for s in scores]), rows.size
    cells = () if axes is None else axes(options, x, [grid.size] * len(x), n, epsilon)
    terms = Terms(data.domain, grid.size, epsilon, "squared", n, np.unique(x[0]).size, options, x[0], cells)
    found, _ = fitted(shape, terms, x if len(x) > 1 else x[0], data.domain.index(data.labels[rows])[0])
    return PairMap((grid, grid), found) if isinstance(found, MonotoneGrid) else ScoreMap(grid, found)


def judged(data: Data, mechanism: str, way: str, epsilon: str, seed: int) -> tuple[Result, dict[str, Reliability]]:
    total, n = Epsilon.parse(epsilon), data.labels.size
    order = np.random.default_rng(seed + 1000).permutation(n)
    kept = order[n // SHARE :] if way == "disjoint" else order
    own = order[: n // SHARE] if way == "disjoint" else order
    extra = Epsilon(total.nano // SHARE)
    model = model_of(data, kept, mechanism, total - extra if way == "split" else total)
    predicted = {MODEL: model.predict(data.test)}
    if way != "all":
        scores = model.predict(data.features.take(own))
        for shape in ("monotone", "bins"):
            found = map_of(shape, data, own, [scores], extra if way == "split" else total)
            assert isinstance(found, ScoreMap)
            predicted[shape] = found.apply(predicted[MODEL])
            predicted[f"{shape}, lines"] = replace(found, interpolate=True).apply(predicted[MODEL])
    diagrams = {kind: reliability(p, data.truth) for kind, p in predicted.items()}
    variance = float(np.var(data.truth))
    mse = {kind: float(np.mean((p - data.truth) ** 2)) / variance for kind, p in predicted.items()}
    errors = {kind: d.error / math.sqrt(variance) for kind, d in diagrams.items()}
    floor = diagrams[MODEL].floor / math.sqrt(variance)
    return Result(data.name, mechanism, way, epsilon, seed, n, mse, errors, floor), diagrams


def run(out: Path, quick: bool) -> None:
    """Write calibration.csv, calibration.md and calibration.png."""
    rows, results = 3_000 if quick else 8_000, []
    shown: dict[tuple[str, str], dict[str, Reliability]] = {}
    for seed in range(1 if quick else 3):
        for data in (Data.of(task(seed), rows, seed) for task in (census, retail)):
            for epsilon in (SHOWN,) if quick else EPSILONS:
                for mechanism in LABELS:
                    for way in WAYS:
                        result, diagrams = judged(data, mechanism, way, epsilon, seed)
                        results.append(result)
                        if (way, epsilon, seed) == ("disjoint", SHOWN, 0):
                            shown[data.name, mechanism] = diagrams
    with (out / "calibration.csv").open("w", newline="", encoding="utf-8") as file:
        rows_of = [result.row() for result in results]
        writer = csv.DictWriter(file, max(rows_of, key=len), restval="")
        writer.writeheader()
        writer.writerows(rows_of)
    draw(shown, out / "calibration.png")
    text = "\n".join([*lines(results), ""])
    (out / "calibration.md").write_text(text, encoding="utf-8")
    print(text)


def lines(results: list[Result]) -> Iterator[str]:
    assert __doc__ is not None
    yield from (
        "# Calibration",
        "",
        __doc__.strip(),
        "",
        f"{results[0].rows:,} training rows, mean over seeds ± standard error.",
        "",
    )
    kinds = [MODEL, *MAPS]
    heads = ["data", "labels", "ε", "way", f"mse: {MODEL}", *MAPS, f"calibration error: {MODEL}", *MAPS, "sampling"]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    keys = dict.fromkeys((r.data, r.labels, r.epsilon, r.way) for r in results)
    for key in sorted(keys, key=lambda k: (k[0], k[1], float(k[2]), WAYS.index(k[3]))):
        own = [r for r in results if (r.data, r.labels, r.epsilon, r.way) == key]
        cells = [spread([r.mse[kind] for r in own if kind in r.mse]) for kind in kinds]
        cells += [spread([r.error[kind] for r in own if kind in r.error]) for kind in kinds]
        floor = f"{np.mean([r.floor for r in own]):.3f}"
        yield f"| {' | '.join(key)} | " + " | ".join([*cells, floor]) + " |"


def spread(values: list[float]) -> str:
    if not values:
        return ""
    shown = f"{np.mean(values):.3f}"
    return shown if len(values) < 2 else f"{shown} ± {np.std(values, ddof=1) / math.sqrt(len(values)):.3f}"


def draw(shown: dict[tuple[str, str], dict[str, Reliability]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(shown), figsize=(3.4 * len(shown), 3.4), layout="constrained", squeeze=False)
    for axis, ((data, mechanism), diagrams) in zip(axes[0], shown.items(), strict=True):
        ends = np.concatenate([np.concatenate([diagrams[k].predicted, diagrams[k].observed]) for k in COLOURS])
        axis.plot([ends.min(), ends.max()], [ends.min(), ends.max()], color="0.6", lw=1)
        for kind, colour in COLOURS.items():
            found = diagrams[kind]
            bars = 2 * found.standard_error
            axis.errorbar(found.predicted, found.observed, yerr=bars, color=colour, fmt="o-", ms=3, lw=1, label=kind)
        axis.set(title=f"{data}, {mechanism}, ε {SHOWN}", xlabel="mean prediction", ylabel="mean label")
        axis.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)
