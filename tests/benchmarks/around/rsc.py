"""Reorder–Slice–Compute beside the exponential mechanism: sample sizes at which interval point, median, rectangles and
adaptive training work, what slices cost by every proved bound, and what a session does to a model's error.

A size *works* where at least 19 of 20 trials succeed, searched by doubling and bisection; on labels whose common
prefixes are spread over all lengths (log-uniform), which is the hard case. The paper promises log*|X| labels up to a
constant that its text does not name; the exponential mechanism needs a multiple of log|X|.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.companions.costs.slices import SliceNoise, Step, advanced, in_order
from label_dp.errors import LabelDPError
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.private_median.accounting import noisy_slices
from labels_party.companions.mechanisms.private_median.adaptive_training import TrainingPlan, train
from labels_party.companions.mechanisms.private_median.interval_point import IntervalPlan, IntervalPoint
from labels_party.companions.mechanisms.private_median.median import MedianPlan, private_median
from labels_party.companions.mechanisms.private_median.rectangles import RectanglePlan, private_rectangle
from labels_party.mechanisms.entropy import Keystream
from labels_party.mechanisms.quantiles import EACH, plan_quantiles, quantiles

DELTA = Fraction(1, 10**9)
SHARE = 0.95
SEED = 7
Points = npt.NDArray[np.uint64]
Row = dict[str, Any]


def run(out: Path, quick: bool) -> None:
    """Writes rsc-sizes.csv, rsc-cost.csv, rsc-training.csv, rsc-rectangles.csv, rsc.png and rsc.md into `out`."""
    sizes, costs = list(sample_sizes(quick)), list(slice_costs())
    rectangles, training = list(rectangle_rows(quick)), list(training_rows(quick))
    tables = {"rsc-sizes": sizes, "rsc-cost": costs, "rsc-rectangles": rectangles, "rsc-training": training}
    for name, rows in tables.items():
        _write(out / f"{name}.csv", rows)
        _show(name, rows)
    _figure(out / "rsc.png", sizes, costs)
    (out / "rsc.md").write_text(_words(sizes, costs, rectangles, training), encoding="utf-8")


# --- sample sizes -------------------------------------------------------------------------------------------


def log_uniform(n: int, bits: int, rng: np.random.Generator) -> Points:
    return np.asarray(np.floor(2.0 ** (rng.random(n) * bits * 0.999)), np.uint64)


def sample_sizes(quick: bool) -> Iterable[Row]:
    trials = 20 if quick else 40
    for bits in (16, 63) if quick else (10, 24, 40, 63):
        for epsilon in ("1",) if quick else ("0.5", "1", "2"):
            for task, works in _tasks(bits, epsilon):
                for mechanism, trial in works.items():
                    yield {
                        "task": task,
                        "mechanism": mechanism,
                        "bits": bits,
                        "epsilon": epsilon,
                        "delta": float(DELTA) if mechanism == "slices" else 0,
                        "n": smallest(trial, trials),
                    }


Trial = Callable[[int, np.random.Generator], bool]


def _tasks(bits: int, epsilon: str) -> list[tuple[str, dict[str, Trial]]]:
    exact, size = Epsilon.parse(epsilon), 1 << bits

    def interval(n: int, rng: np.random.Generator) -> bool:
        points = log_uniform(n, bits, rng)
        found = IntervalPoint(IntervalPlan(bits, exact.fraction, DELTA), points.size, Keystream())(points)
        return found is not None and int(points.min()) <= found <= int(points.max())

    def interval_by_ranks(n: int, rng: np.random.Generator) -> bool:
        points = log_uniform(n, bits, rng)
        found = quantiles(points, size, plan_quantiles(["0.5"], exact, n, size, method=EACH))[0]
        return int(points.min()) <= found <= int(points.max())

    def median(n: int, rng: np.random.Generator) -> bool:
        points = log_uniform(n, bits, rng)
        return _between_thirds(points, private_median(points, MedianPlan(n, size, exact.fraction, DELTA)))

    def median_by_ranks(n: int, rng: np.random.Generator) -> bool:
        points = log_uniform(n, bits, rng)
        return _between_thirds(points, quantiles(points, size, plan_quantiles(["0.5"], exact, n, size, method=EACH))[0])

    return [
        ("interval point", {"slices": interval, "ranks": interval_by_ranks}),
        ("median", {"slices": median, "ranks": median_by_ranks}),
    ]


def _between_thirds(points: Points, found: int | None) -> bool:
    if found is None:
        return False
    third = math.ceil(points.size / 3)
    return int(np.sum(points <= np.uint64(found))) >= third and int(np.sum(points >= np.uint64(found))) >= third


def smallest(trial: Trial, trials: int) -> int:
    """The least n, to 5 %, of which SHARE of the trials succeed."""
    rng = np.random.default_rng(SEED)

    def works(n: int) -> bool:
        failures = 0
        for _ in range(trials):
            try:
                failures += not trial(n, rng)
            except LabelDPError:  # too few for the mechanism to be planned
                return False
            if failures > (1 - SHARE) * trials:
                return False
        return True

    high = 8
    while not works(high):
        high *= 2
    low = high // 2
    while high > low * 1.05 + 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high


# --- what slices cost ---------------------------------------------------------------------------------------


def slice_costs() -> Iterable[Row]:
    delta, n = Fraction(1, 10**6), 10**6
    for epsilon in ("0.01", "0.1", "0.5"):
        step = Step(Fraction(epsilon))
        for k in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
            row: Row = {"epsilon of a step": epsilon, "steps": k, "delta": float(delta)}
            row["composition"] = float(in_order([step] * k).epsilon)
            row["advanced composition"] = round(float(advanced([step] * k, delta).epsilon), 6)
            for mean in (10, 100, 1000):
                cost = noisy_slices(step, k, SliceNoise(mean), delta, n)
                row[f"noisy slices, mean {mean}"] = "" if cost is None else round(float(cost.epsilon), 6)
            yield row


# --- rectangles ---------------------------------------------------------------------------------------------


def rectangle_rows(quick: bool) -> Iterable[Row]:
    rng, bits = np.random.default_rng(SEED), 40
    for axes in (1, 2) if quick else (1, 2, 4):
        n, each = 6000 * axes, 600
        points = rng.integers(0, 1 << bits, (n, axes))
        positive = np.all((points > (1 << bits) * 0.05) & (points < (1 << bits) * 0.95), axis=1)
        for total in ("2", "8") if quick else ("2", "4", "8"):
            epsilon = Fraction(total) / (2 * axes)
            plan = RectanglePlan(n, axes, bits, each, epsilon, DELTA)
            inside = private_rectangle(points, positive, plan).contains(points)
            yield {
                "axes": axes,
                "n": n,
                "epsilon": float(plan.cost.epsilon),
                "delta": float(plan.cost.delta),
                "bound": plan.session.rule,
                "slice": each,
                "negatives inside": int(np.sum(inside & ~positive)),
                "positives outside": int(np.sum(positive & ~inside)),
                "at most, by the paper": 2 * axes * each,
            }


# --- training -----------------------------------------------------------------------------------------------


def training_rows(quick: bool) -> Iterable[Row]:
    n, features, steps, minibatch, slack = 30_000, 6, 80, 250, Fraction(1, 10**6)
    rng = np.random.default_rng(SEED)
    true = rng.normal(size=features)
    settings: Sequence[tuple[str, str, SliceNoise | None]] = (
        ("uniform", "composition", None),
        ("hardest", "composition", None),
        ("hardest", "noisy slices", SliceNoise(100)),
        ("easiest", "composition", None),
        ("easiest", "noisy slices", SliceNoise(100)),
    )
    for total in ("1",) if quick else ("0.5", "1", "2"):
        for rule, bound, noise in settings:
            found = []
            for _ in range(2 if quick else 5):
                x = rng.normal(size=(n, features))
                y = x @ true + rng.standard_t(3, size=n)
                scale = 4.0
                plan = TrainingPlan.within(
                    Fraction(total),
                    n=n,
                    features=features,
                    steps=steps,
                    minibatch=minibatch,
                    noise=noise,
                    slack=Fraction(0) if noise is None else slack,
                    rule=rule,
                )
                weights = train(x, y / scale, plan) * scale
                found.append(float(np.sqrt(np.mean((weights - true) ** 2))))
            yield {
                "rule": rule,
                "bound": plan.session.rule if noise else bound,
                "epsilon": total,
                "delta": float(plan.cost.delta),
                "epsilon of a step": round(float(plan.epsilon), 5),
                "error of the weights": round(float(np.mean(found)), 4),
                "its standard error": round(float(np.std(found) / math.sqrt(len(found))), 4),
                "length of the weights": round(float(np.sqrt(np.mean(true**2))), 4),
            }


# --- output -------------------------------------------------------------------------------------------------


def _write(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _table(rows: Sequence[Row]) -> str:
    heads = list(rows[0])
    lines = [heads, ["---"] * len(heads), *([str(row[h]) for h in heads] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _show(name: str, rows: Sequence[Row]) -> None:
    print(f"\n{name}\n{_table(rows)}")


def _figure(path: Path, sizes: Sequence[Row], costs: Sequence[Row]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(15, 4.5))
    for ax, task in zip(axes, ("interval point", "median"), strict=False):
        for mechanism, style in (("slices", "o-"), ("ranks", "s--")):
            for epsilon in sorted({row["epsilon"] for row in sizes}, key=float):
                kept = [r for r in sizes if (r["task"], r["mechanism"], r["epsilon"]) == (task, mechanism, epsilon)]
                ax.plot([r["bits"] for r in kept], [r["n"] for r in kept], style, label=f"{mechanism}, ε = {epsilon}")
        ax.set(title=f"{task}: labels needed", xlabel="log₂ |X|", ylabel="n", yscale="log")
        ax.legend(fontsize=7)
    kept = [row for row in costs if row["epsilon of a step"] == "0.1"]
    for name in list(kept[0])[3:]:
        drawn = [(row["steps"], row[name]) for row in kept if row[name] != ""]
        axes[2].plot([k for k, _ in drawn], [e for _, e in drawn], ".-", label=name)
    axes[2].set(title="steps of ε = 0.1, δ = 10⁻⁶", xlabel="steps", ylabel="ε in all", xscale="log", yscale="log")
    axes[2].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def _words(sizes: Sequence[Row], costs: Sequence[Row], rectangles: Sequence[Row], training: Sequence[Row]) -> str:
    most = max(int(row["bits"]) for row in sizes)
    of = {(r["task"], r["mechanism"]): r["n"] for r in sizes if r["bits"] == most and r["epsilon"] == "1"}
    return f"""# Reorder–Slice–Compute beside the exponential mechanism

Made by `make around ARGS=rsc`. δ = 10⁻⁹ for slices, 0 for ranks; a size works where 19 of 20 trials succeed.

On a domain of 2^{most} points at ε = 1 an interval point takes {of["interval point", "slices"]} labels by slices and
{of["interval point", "ranks"]} by ranks, a median {of["median", "slices"]} and {of["median", "ranks"]}: log* beats log
on larger domains than fit into 64 bits. Slices need next to nothing more for more bits; ranks are pure and need fewer.

![Labels needed, and what slices cost](rsc.png)

## Labels needed

{_table(sizes)}

## What k slices of one ε each cost, by every bound that is proved (the least is charged)

{_table(costs)}

## Rectangles (slices ordered by the data: their costs add up)

Where more are outside than the paper allows, a side was not found: each of the 2·axes slices has ε/(2·axes) only.

{_table(rectangles)}

## Training with examples chosen by the model (linear, Huber loss; one pass)

{_table(training)}
"""
