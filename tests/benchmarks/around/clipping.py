"""Private clipping bounds: the rank error of bought quantiles beside OpenDP's, and what buying a bound does to a model.

Rank error: by how many labels the answer misses its quantile. `exponential` is ours (replace-one, n public), on every
point of the range; `bound` what is proved of it, 2·ln(20·range)/ε, exceeded once in 20 times at most. `scale grid` is
the same among the candidates of a release, a thirty-second apart, so that the best of them may miss, too. `OpenDP` is
`make_private_quantile` at the same ε and adjacency: permute-and-flip, which needs up to half the ε for the same error,
over candidates that have to be listed; ranges of more than 2¹⁴ points get 2¹⁴ of them, evenly spaced.

End to end: test error of boosted trees on one-bit labels (clip auto) with a known bound B, on a domain declared far too
wide, and on that domain with a bound bought with a tenth of ε, all at the same ε in all. Errors are against labels
clipped at B, and predictions are clipped there too; 1 is the error of the best constant.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from features_party.training.correction import correct
from label_dp.domain import Domain
from label_dp.privacy import ZERO, Epsilon
from labels_party.mechanisms.quantiles import (
    EACH,
    RECURSIVE,
    candidate_quantiles,
    plan_quantiles,
    quantiles,
    scale_grid,
)
from labels_party.mechanisms.sampling import sample
from labels_party.message.engine import DrawJob, LocalEngine
from labels_party.message.plan import make_plan, resolve
from tests.support.asked import release_wish
from tests.support.asking import population as parse_population
from tests.support.pipeline_audit import Labels
from tests.support.real_data import retail
from tests.support.training import fit_and_judge

Index = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

N, EPSILON, BITS, QUANTILE = 10_000, "0.5", 24, 0.95
ROWS = (300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
EPSILONS = ("0.05", "0.1", "0.25", "0.5", "1", "2")
SIZES = (18, 24, 32, 40, 48, 56, 64)  # log₂ of the range
MOST_CANDIDATES = 1 << 14
MANY = (1, 2, 3, 7, 15, 31)  # quantiles at once
PIPELINE_EPSILONS = ("0.5", "1", "2")
SHARE = 10  # of ε, for the bound
WIDE = 100_000
METHODS = ("known bound", "wide domain", "bought 0.95", "bought 0.99")


@dataclass(frozen=True)
class RankError:
    """`error` is the mean, `worst` the 0.95-quantile over the runs, both in labels."""

    swept: str
    method: str
    n: int
    epsilon: str
    log2_range: int
    quantiles: int
    runs: int
    error: float
    worst: float
    bound: float


@dataclass(frozen=True)
class Trained:
    data: str
    method: str
    epsilon: str
    seed: int
    rows: int
    bound: float
    mse: float
    relative: float


# --- rank errors ---------------------------------------------------------------------------------------------


@cache
def labels_of(n: int, seed: int) -> Index:
    """Lognormal amounts in thousandths: half are above 20,000, one in twenty above 104,000."""
    drawn = np.random.default_rng(seed).lognormal(math.log(20_000), 1.0, n)
    return np.sort(np.minimum(drawn, (1 << 18) - 1).astype(np.int64))


def missed(ordered: Index, found: list[int], wanted: list[float]) -> float:
    """The largest number of labels by which an answer misses its quantile."""
    below, upto = (np.searchsorted(ordered, np.array(found, np.uint64), side) for side in ("left", "right"))
    target = np.array(wanted) * ordered.size
    return float(np.max(np.maximum(np.maximum(below - target, target - upto), 0.0)))


def ours(swept: str, n: int, epsilon: str, bits: int, many: int, runs: int, method: str = EACH) -> RankError:
    wanted = [QUANTILE] if many == 1 else [round(i / (many + 1), 6) for i in range(1, many + 1)]
    plan = plan_quantiles([str(q) for q in wanted], Epsilon.parse(epsilon), n, 1 << bits, method=method)
    errors = []
    for seed in range(runs):
        ordered = labels_of(n, seed)
        errors.append(missed(ordered, quantiles(ordered, 1 << bits, plan), wanted))
    name = "exponential" if swept != "quantiles" else method
    worst = float(np.quantile(errors, 0.95))
    return RankError(swept, name, n, epsilon, bits, many, runs, float(np.mean(errors)), worst, plan.rank_error)


def on_grid(swept: str, n: int, epsilon: str, bits: int, runs: int) -> RankError:
    bits = min(bits, 62)  # int64
    grid = scale_grid(1 << bits, 0)
    plan = plan_quantiles([str(QUANTILE)], Epsilon.parse(epsilon), n, grid.size, method=EACH)
    errors = []
    for seed in range(runs):
        ordered = labels_of(n, seed)
        below, upto = (np.searchsorted(ordered, grid, side).astype(np.int64) for side in ("left", "right"))
        found = grid[candidate_quantiles(below, upto, n, plan)].tolist()
        errors.append(missed(ordered, found, [QUANTILE]))
    worst = float(np.quantile(errors, 0.95))
    return RankError(swept, "scale grid", n, epsilon, bits, 1, runs, float(np.mean(errors)), worst, plan.rank_error)


def theirs(swept: str, n: int, epsilon: str, bits: int, runs: int) -> RankError:
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_private_quantile
    from opendp.measures import max_divergence
    from opendp.metrics import symmetric_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    # evenly spaced over the range, in floats, which hold whole numbers of 53 bits
    candidates = np.unique(np.linspace(0, (1 << bits) - 1, min(1 << bits, MOST_CANDIDATES)).round()).tolist()
    domain = vector_domain(atom_domain(T="f64", nan=False), size=n)
    scale = 2.0 / float(epsilon)
    measures = symmetric_distance(), max_divergence()
    draw = make_private_quantile(domain, *measures, candidates=candidates, alpha=QUANTILE, scale=scale)
    assert cast(Any, draw).map(2) <= float(epsilon) * (1 + 1e-9)  # replacing a label is one deletion and one insertion
    errors = []
    for seed in range(runs):
        ordered = labels_of(n, seed)
        errors.append(missed(ordered, [int(draw(ordered.astype(np.float64).tolist()))], [QUANTILE]))
    worst = float(np.quantile(errors, 0.95))
    return RankError(swept, "OpenDP", n, epsilon, bits, 1, runs, float(np.mean(errors)), worst, math.nan)


def rank_errors(quick: bool) -> Iterator[RankError]:
    runs = 10 if quick else 30
    for n in ROWS[:4:2] if quick else ROWS:
        few = max(5, min(runs, 3_000_000 // n))
        yield ours("n", n, EPSILON, BITS, 1, few)
        yield on_grid("n", n, EPSILON, BITS, few)
        yield theirs("n", n, EPSILON, BITS, few)
    for epsilon in EPSILONS[::3] if quick else EPSILONS:
        yield ours("ε", N, epsilon, BITS, 1, runs)
        yield on_grid("ε", N, epsilon, BITS, runs)
        yield theirs("ε", N, epsilon, BITS, runs)
    for bits in SIZES[::3] if quick else SIZES:
        yield ours("range", N, EPSILON, bits, 1, runs)
        yield on_grid("range", N, EPSILON, bits, runs)
        yield theirs("range", N, EPSILON, bits, runs)
    for many in MANY[::2] if quick else MANY:
        for method in (EACH, RECURSIVE):
            yield ours("quantiles", N, "1", BITS, many, 10 if quick else 20, method)


# --- end to end ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Amounts, rounded down to whole numbers, with what explains them; `known` is B."""

    name: str
    known: int
    features: pa.Table
    labels: FloatArray
    test_features: pa.Table
    test_labels: FloatArray


def lognormal(rows: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    n = 2 * rows
    x, group = rng.normal(size=n), rng.integers(0, 20, n)
    labels = np.floor(np.exp(2.5 + 0.7 * x + 0.5 * np.sin(group) + 0.7 * rng.normal(size=n)))
    names = pa.array(np.array([f"g{i}" for i in range(20)])[group])
    table = pa.table({"x": x, "x2": x + 0.5 * rng.normal(size=n), "group": names})
    # 80: the round figure that somebody who knows such amounts would declare; about 0.96 of them are below
    return Data("lognormal", 80, table[:rows], labels[:rows], table[rows:], labels[rows:])


def shop(rows: int, seed: int) -> Data:
    task = retail(seed)
    rng = np.random.default_rng(seed)
    train = task.train.take(rng.permutation(task.train.num_rows)[:rows])
    test = task.test.take(rng.permutation(task.test.num_rows)[:rows])
    drop = [name for name in train.column_names if name in (task.label, "row_id")]

    def amounts(table: pa.Table) -> FloatArray:
        return np.asarray(np.floor(np.maximum(table[task.label].to_numpy().astype(np.float64), 0.0)))

    name = "retail" if task.real else "retail (a stand-in)"
    return Data(name, 60, train.drop_columns(drop), amounts(train), test.drop_columns(drop), amounts(test))


def trained(data: Data, method: str, epsilon: str, seed: int) -> Trained:
    """The pipeline's own steps on these labels, then correction and training as the features party does them."""
    total, quantile = Epsilon.parse(epsilon), method.removeprefix("bought ")
    domain = Domain.parse(f"0:{data.known if method == 'known bound' else WIDE}")
    bought = method.startswith("bought")
    request = release_wish(
        total,
        mechanism="one-bit",
        options={"clip": "auto"},
        clip_quantiles=(quantile,) if bought else (),
        clip_epsilon=Epsilon(total.nano // SHARE) if bought else ZERO,
    )
    population = parse_population("benchmark", "amount", domain, "100")
    n = data.labels.size
    index = domain.index(data.labels)[0]
    plan = make_plan(request, population, n)
    whole = cast(Any, Labels(index.tolist()))
    job = DrawJob(population, plan, whole, n, 1, None, Path(), 1, lambda _what, _share: None)
    job = LocalEngine._bought(job)
    part = job.population.domain
    prior = LocalEngine._prior(job)
    resolved = resolve(job.plan, part, prior, n)
    clipped = np.concatenate([chunk for _, chunk in job.labels.chunks()])
    bins = sample(resolved.channel, clipped)
    shares = np.bincount(bins, minlength=resolved.channel.m) / n
    correction = correct(resolved.channel, "auto", prior, shares, n)
    corrected = correction.corrected[bins]
    model, _ = fit_and_judge(
        data.features, corrected, noise_variance=correction.noise_variance, domain=part, model="trees"
    )
    truth = np.minimum(data.test_labels, data.known)
    predictions = np.clip(model.predict(data.test_features), 0.0, data.known)
    mse = float(np.mean((predictions - truth) ** 2))
    bound = float(part.values[-1])
    return Trained(data.name, method, epsilon, seed, n, bound, mse, mse / float(np.var(truth)))


def end_to_end(quick: bool) -> Iterator[Trained]:
    rows = 6_000 if quick else 12_000
    for seed in range(1 if quick else 3):
        for data in (lognormal(rows, seed), shop(rows, seed)):
            for epsilon in PIPELINE_EPSILONS[1:2] if quick else PIPELINE_EPSILONS:
                for method in METHODS:
                    yield trained(data, method, epsilon, seed)


# --- what is kept --------------------------------------------------------------------------------------------


def draw(errors: list[RankError], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    colours = {"exponential": "#0072B2", "OpenDP": "#E69F00", EACH: "#0072B2", RECURSIVE: "#009E73"}
    colours["scale grid"] = "#CC79A7"
    axis_of: dict[str, Callable[[RankError], float]] = {
        "n": lambda row: row.n,
        "ε": lambda row: float(row.epsilon),
        "range": lambda row: 2.0**row.log2_range,
        "quantiles": lambda row: row.quantiles,
    }
    figure, axes = plt.subplots(1, 4, figsize=(14, 3.6), layout="constrained")
    for axis, (swept, along) in zip(axes, axis_of.items(), strict=True):
        for method, colour in colours.items():
            of = [row for row in errors if row.swept == swept and row.method == method]
            at = [along(row) for row in of]
            if of:
                axis.plot(at, [max(row.error, 0.1) for row in of], color=colour, marker="o", ms=3, label=method)
            if of and method != "OpenDP":
                axis.plot(at, [row.bound for row in of], color=colour, ls="--", label=f"bound, {method}")
        axis.set(xscale="log", yscale="log", xlabel=swept, title=f"by {swept}")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7, frameon=False)
    axes[0].set_ylabel("rank error (labels)")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def error_table(errors: list[RankError], swept: str) -> Iterator[str]:
    yield from (f"By {swept}:", "", "| n | ε | log₂ range | quantiles | method | runs | mean | 0.95 | bound |")
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in errors:
        if row.swept == swept:
            figures = [f"{row.error:.3g}", f"{row.worst:.3g}", "" if math.isnan(row.bound) else f"{row.bound:.3g}"]
            kind = f"{row.n} | {row.epsilon} | {row.log2_range} | {row.quantiles} | {row.method} | {row.runs}"
            yield f"| {kind} | {' | '.join(figures)} |"
    yield ""


def model_table(models: list[Trained]) -> Iterator[str]:
    yield "| data | ε | " + " | ".join(METHODS) + " | bounds bought at 0.95 |"
    yield "|---|---|" + "---|" * (len(METHODS) + 1)
    for data in dict.fromkeys(row.data for row in models):
        for epsilon in dict.fromkeys(row.epsilon for row in models):
            own = {m: [r for r in models if (r.data, r.epsilon, r.method) == (data, epsilon, m)] for m in METHODS}
            cells = [spread([row.relative for row in own[method]]) for method in METHODS]
            bounds = ", ".join(f"{row.bound:.0f}" for row in own["bought 0.95"])
            yield f"| {data} | {epsilon} | {' | '.join(cells)} | {bounds} |"
    yield ""


def spread(values: list[float]) -> str:
    shown = f"{np.mean(values):.3f}"
    return shown if len(values) < 2 else f"{shown} ± {np.std(values, ddof=1) / math.sqrt(len(values)):.3f}"


def write_csv(rows: list[Any], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in asdict(row).items()} for row in rows)


def run(out: Path, quick: bool) -> None:
    """clipping.csv and clipping-models.csv, clipping.png and clipping.md."""
    errors, models = list(rank_errors(quick)), list(end_to_end(quick))
    write_csv(errors, out / "clipping.csv")
    write_csv(models, out / "clipping-models.csv")
    draw(errors, out / "clipping.png")
    lines = ["# Private clipping bounds", "", *(__doc__ or "").splitlines()[2:], ""]
    lines += [
        f"The {QUANTILE}-quantile of n = {N} lognormal amounts at ε = {EPSILON} in 2^{BITS} points unless swept; "
    ]
    lines += ["several quantiles (evenly spaced) at ε = 1, the worst of them.", "", "![rank error](clipping.png)", ""]
    for swept in ("n", "ε", "range", "quantiles"):
        lines += error_table(errors, swept)
    lines += [f"End to end, {models[0].rows} training rows, wide domain 0:{WIDE}; ± is one standard error:", ""]
    lines += model_table(models)
    text = "\n".join(lines) + "\n"
    (out / "clipping.md").write_text(text, encoding="utf-8")
    print(text)
