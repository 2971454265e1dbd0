"""Private prediction: what single answers err by, against ε, n and the number of queries, beside the paper's bounds and
beside a model trained on a privatized message of the same total ε.

Every answer is drawn as the service draws it, a new test point each; a predictor that answers Q queries of a total ε
spends ε/Q on each, a message its whole ε once. Labels follow from five uniform features by a linear rule (for the walk:
from one, by a threshold); the message's labels go to the same learner, corrected so that they are unbiased.

Errors: of `soft-majority` and `walk` how often an answer is not that of the true rule (the walk's labels are wrong for
one in ten examples); of `average` and `stable-ridge` the squared distance to the true mean, in squared ranges of the
label; of `stable-logistic` the distance to the true probability. Bounds: Theorem 4.1 (its proof, with the measured
error of the parts), Lemma 4.5 (over the measured error of the same learner without noise), Theorem 5.3.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.kinds.prediction.plan import ALPHA, NOISE, PER_PART
from labels_party.companions.mechanisms.private_prediction import GRID, UNIT, average, stable, votes, walk
from labels_party.companions.mechanisms.private_prediction.learners import LEARNERS, stacked
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.entropy import Keystream, LaplaceNoise, discrete_laplace
from labels_party.mechanisms.sampling import sample

Floats = npt.NDArray[np.float64]
WIDTH, TESTS, LABELS, FLIPS = 6, 400, 100, 0.1
NORM = WIDTH  # B²: five features of at most 1 and the constant
EPSILONS = ("0.1", "0.25", "0.5", "1", "2", "4", "8")
ROWS = (1_000, 4_000, 16_000, 64_000)
QUERIES = (1, 4, 16, 64, 256, 1024)
N, EPSILON, TOTAL = 10_000, "0.5", "4"
WEIGHTS = np.array([0.22, -0.12, 0.08, 0.05, 0.0])


@dataclass(frozen=True)
class Row:
    swept: str
    method: str
    n: int
    epsilon: str
    queries: int
    runs: int
    error: float
    spread: float  # two standard errors over the runs
    bound: float
    message: float
    no_privacy: float


@dataclass(frozen=True)
class Found:
    error: float
    bound: float
    message: float
    no_privacy: float


class Data:
    """`x` int64[n, D] as learners see it; `mean` of the label at every point, in shares of its range."""

    def __init__(self, n: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.x, self.mean = self._points(n)
        self.test, self.truth = self._points(TESTS)
        noisy = self.mean + 0.15 * self.rng.normal(size=n)
        self.labels = np.clip(np.rint(noisy * LABELS), 0, LABELS).astype(np.int64)

    def _points(self, n: int) -> tuple[npt.NDArray[np.int64], Floats]:
        x = self.rng.integers(-UNIT, UNIT + 1, (n, WIDTH))
        x[:, -1] = UNIT
        return x, np.clip(0.5 + x[:, :-1] / UNIT @ WEIGHTS, 0.0, 1.0)


def message(labels: npt.NDArray[np.int64], k: int, epsilon: Fraction) -> Floats:
    """Corrected labels, E[v | y] = y, in shares of the range: one bit for many labels, randomized response for two."""
    domain = Domain.parse(f"0:{k - 1}")
    asked = Epsilon.round_down(epsilon)
    channel = MECHANISMS["one-bit" if k > 2 else "rr"].design(domain, None, asked, "squared", {})
    return np.asarray(channel.debiased_outputs(), np.float64)[sample(channel, labels)] / (k - 1)


def noise(sensitivity: int, epsilon: Fraction) -> Floats:
    """One draw per test point, in steps of 1/GRID."""
    return discrete_laplace(LaplaceNoise(sensitivity, epsilon), TESTS).astype(np.float64)


# --- the methods ---------------------------------------------------------------------------------------------


def soft_majority(data: Data, epsilon: Fraction, queries: int) -> Found:
    """Labels of which every example has the true one, as in PAC learning."""
    each, n, learner = epsilon / queries, len(data.x), LEARNERS["logistic"]
    concept, truth = (data.mean >= 0.5).astype(np.int64), data.truth >= 0.5
    parts = min(votes.parts_for(ALPHA, each), n // PER_PART, votes.MOST_PARTS)
    state = stacked(learner, data.x, concept.astype(np.float64), np.arange(n) % parts, parts)
    said = np.array([learner.predict(state, point) >= 0.5 for point in data.test])
    source = Keystream()
    answers = np.array([votes.soft_majority(int(ones), parts, each, source) for ones in said.sum(1)])
    wrong_parts = float((said != truth[:, None]).mean())
    corrected = learner.fit(data.x, message(concept, 2, epsilon))
    plain = learner.fit(data.x, concept.astype(np.float64))
    models = [np.array([learner.predict(m, p) >= 0.5 for p in data.test]) for m in (corrected, plain)]
    bound = min(1.0, 3 * wrong_parts + math.exp(-float(each) * parts / 6))
    return Found(float((answers != truth).mean()), bound, *(float((m != truth).mean()) for m in models))


def _means(data: Data, epsilon: Fraction) -> tuple[float, float]:
    """Squared errors of ridge on a message's labels, and on the labels themselves."""
    learner = LEARNERS["ridge"]
    found = [learner.fit(data.x, y) for y in (message(data.labels, LABELS + 1, epsilon), data.labels / LABELS)]
    told = [np.clip([float(learner.predict(m, point)) for point in data.test], 0, 1) for m in found]
    return float(np.mean((told[0] - data.truth) ** 2)), float(np.mean((told[1] - data.truth) ** 2))


def averaged(data: Data, epsilon: Fraction, queries: int) -> Found:
    each, n, learner = epsilon / queries, len(data.x), LEARNERS["ridge"]
    parts = min(average.parts_for(NOISE, each), n // PER_PART, votes.MOST_PARTS)
    state = stacked(learner, data.x, data.labels / LABELS, np.arange(n) % parts, parts)
    told = np.array([np.clip(learner.predict(state, point), 0, 1) for point in data.test])
    sums = np.array([average.clipped_sum(row) for row in told])
    answers = np.clip(sums + noise(GRID, each), 0, parts * GRID) / (parts * GRID)
    bound = float(np.mean((told - data.truth[:, None]) ** 2)) + 2 / (parts * float(each)) ** 2
    return Found(float(np.mean((answers - data.truth) ** 2)), min(1.0, bound), *_means(data, epsilon))


def ridge(data: Data, epsilon: Fraction, queries: int) -> Found:
    each, n = epsilon / queries, len(data.x)
    strength = stable.regularisation_for(n, each)
    labels = np.rint(data.labels / LABELS * GRID).astype(np.int64)
    model = stable.fit_ridge(data.x, labels, NORM, strength, GRID // 2)
    step = stable.ridge_sensitivity(n, strength)
    told = np.array([stable.ridge_position(model, point) for point in data.test])
    answers = np.clip(told + noise(step, each), 0, GRID) / GRID
    scale = float(step / each) / GRID
    bound = float(np.mean((told / GRID - data.truth) ** 2)) + 2 * scale**2
    return Found(float(np.mean((answers - data.truth) ** 2)), min(1.0, bound), *_means(data, epsilon))


def logistic(data: Data, epsilon: Fraction, queries: int) -> Found:
    each, n = epsilon / queries, len(data.x)
    truth = 1 / (1 + np.exp(-8 * (data.truth - 0.5)))
    ones = data.rng.random(n) < 1 / (1 + np.exp(-8 * (data.mean - 0.5)))
    strength = stable.regularisation_for(n, each, Fraction(7, 20))
    weights = stable.fit_logistic(data.x, ones, NORM, strength)
    step = stable.logistic_sensitivity(n, WIDTH, NORM, strength)
    told = np.array([stable.logistic_position(weights, point) for point in data.test])
    answers = np.clip(told + noise(step, each), 0, GRID) / GRID
    learner = LEARNERS["logistic"]
    models = [learner.fit(data.x, y) for y in (message(ones.astype(np.int64), 2, epsilon), ones.astype(np.float64))]
    others = [np.array([float(learner.predict(m, point)) for point in data.test]) for m in models]
    bound = float(np.mean(np.abs(told / GRID - truth))) + float(step / each) / GRID
    errors = [float(np.mean(np.abs(found - truth))) for found in (answers, *others)]
    return Found(errors[0], min(1.0, bound), *errors[1:])


def walked(data: Data, epsilon: Fraction, queries: int) -> Found:
    """A threshold at 0.3 of 2³² positions; one label in ten is the other one."""
    each, n, source = epsilon / queries, len(data.x), Keystream()
    x, points = (data.rng.integers(0, 1 << 32, size) for size in (n, TESTS))
    rule, truth = x >= int(0.3 * 2**32), points >= int(0.3 * 2**32)
    labels = rule ^ (data.rng.random(n) < FLIPS)
    bound = walk.default_bound(n, each)
    found = walk.walk(x, labels, bound)
    answers = np.array([walk.answer(found.at(int(p)), bound, each, source) for p in points])
    alpha = 3 * bound / n + math.exp(-float(each) * bound / 2)
    promised = math.exp(float(each)) * (FLIPS + alpha)  # of labels, so of the rule FLIPS less
    order = np.argsort(x, kind="stable")

    def cut(y: Floats) -> int:
        """The best threshold by its sum of errors."""
        gains = np.append(0.0, np.cumsum(2 * y[order] - 1))  # of saying 0 for the first
        at = int(gains.argmin())
        return int(x[order][at]) if at < n else 1 << 32

    cuts = [cut(y) for y in (message(labels.astype(np.int64), 2, epsilon), labels.astype(np.float64))]
    errors = [float(((points >= c) != truth).mean()) for c in cuts]
    error = float((answers != truth).mean())
    return Found(error, min(1.0, max(promised - FLIPS, 0.0) / (1 - 2 * FLIPS)), errors[0], errors[1])


METHODS = {
    "soft-majority": soft_majority,
    "average": averaged,
    "stable-ridge": ridge,
    "stable-logistic": logistic,
    "walk": walked,
}


def measured(swept: str, method: str, n: int, epsilon: str, queries: int, runs: int) -> Row:
    found = [METHODS[method](Data(n, seed), Fraction(epsilon), queries) for seed in range(runs)]
    errors = [f.error for f in found]
    spread = 2 * float(np.std(errors)) / math.sqrt(runs)
    mean = {name: float(np.mean([getattr(f, name) for f in found])) for name in ("bound", "message", "no_privacy")}
    return Row(swept, method, n, epsilon, queries, runs, float(np.mean(errors)), spread, **mean)


def sweeps(quick: bool) -> Iterator[Row]:
    runs = 2 if quick else 4
    for method in METHODS:
        for epsilon in EPSILONS[1:6:2] if quick else EPSILONS:
            yield measured("ε", method, N, epsilon, 1, runs)
        for n in ROWS[:2] if quick else ROWS:
            yield measured("n", method, n, EPSILON, 1, runs)
        for queries in QUERIES[::2] if quick else QUERIES:
            yield measured("queries", method, N, TOTAL, queries, runs)


def draw(rows: list[Row], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    lines = (
        ("error", "answers", "#0072B2", "o-"),
        ("bound", "the paper's bound", "#0072B2", "--"),
        ("message", "model trained on a message", "#E69F00", "s-"),
        ("no_privacy", "the same learner without privacy", "#8C8C8C", ":"),
    )
    along: dict[str, Any] = {"ε": lambda r: float(r.epsilon), "n": lambda r: r.n, "queries": lambda r: r.queries}
    figure, axes = plt.subplots(len(METHODS), 3, figsize=(11, 13), layout="constrained", sharey="row")
    for line, method in zip(axes, METHODS, strict=True):
        for axis, (swept, at) in zip(line, along.items(), strict=True):
            own = [row for row in rows if row.method == method and row.swept == swept]
            for name, label, colour, style in lines:
                axis.plot(
                    [at(r) for r in own],
                    [max(getattr(r, name), 1e-6) for r in own],
                    style,
                    color=colour,
                    ms=3,
                    label=label,
                )
            axis.set(xscale="log", yscale="log", title=method, xlabel=_caption(swept))
            axis.grid(alpha=0.3)
        line[0].set_ylabel("error")
    axes[0][0].legend(fontsize=7)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _caption(swept: str) -> str:
    fixed = {"ε": f"ε of one query, n = {N:,}", "n": f"n, one query of ε = {EPSILON}"}
    return fixed.get(swept, f"queries that share ε = {TOTAL}, n = {N:,}")


def text(rows: list[Row]) -> str:
    said = [
        "# Private prediction",
        "",
        *((__doc__ or "").strip().splitlines()),
        "",
        "Written by `python -m tests.benchmarks.around prediction`. `±`: two standard errors over the runs.",
        "",
        "| swept | method | n | ε | queries | error | ± | bound | message | no privacy |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for r in rows:
        figures = (r.error, r.spread, r.bound, r.message, r.no_privacy)
        said.append(
            f"| {r.swept} | {r.method} | {r.n} | {r.epsilon} | {r.queries} | "
            + " | ".join(f"{figure:.3g}" for figure in figures)
            + " |"
        )
    return "\n".join(said) + "\n"


def run(out: Path, quick: bool) -> None:
    """Tables and figures of private prediction into `out`."""
    rows = []
    for row in sweeps(quick):
        rows.append(row)
        beside = f"bound {row.bound:.4f}, message {row.message:.4f}, no privacy {row.no_privacy:.4f}"
        asked = f"{row.swept:8} {row.method:16} n {row.n:6} ε {row.epsilon:5} queries {row.queries:5}"
        print(f"{asked}: error {row.error:.4f} ± {row.spread:.4f}, {beside}", flush=True)
    with (out / "prediction.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(asdict(rows[0])))
        table.writeheader()
        table.writerows(asdict(row) for row in rows)
    (out / "prediction.md").write_text(text(rows), encoding="utf-8")
    draw(rows, out / "prediction.png")
