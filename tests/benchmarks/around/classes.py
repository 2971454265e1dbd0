"""Classes: whether a private prior is worth its ε, and what subset selection gains, by the share of information φ² that
is left of the labels.

In the first table each cell is φ² of what `auto` would draw with a bought prior, over φ² of what it draws with the
whole ε and no prior: the geometric mean over draws of the labels and of the prior's noise, judged at the true shares.
The truths are `uniform` and Zipf's law with exponents 1 to 3, in random order. `mean` is the geometric mean over them,
`bought` what the rule of `labels_party.mechanisms.classes` does, from k, n and ε alone; where it buys, φ² is not all
that counts.

In the second table no prior costs anything. `d of k` is the size of a subset and `outputs` the number of subsets. A
cell is what a label by subset selection is worth in labels by the better of `rr` and `rr-with-prior`, which knows the
true shares. `all subsets` is the same of all subsets of d classes, under uniform classes, and `variance` the variance
of unbiased shares of uniform classes by `rr` over that by subset selection.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import Channel
from label_dp.channels.information import share_of_information
from label_dp.channels.subsets import SubsetChannel
from label_dp.domain import Domain
from label_dp.losses import LOG
from label_dp.privacy import Epsilon
from labels_party.mechanisms.auto import choose
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.classes import buys_prior, class_prior
from labels_party.mechanisms.prior import estimate_prior

FloatArray = npt.NDArray[np.float64]

CLASSES = (3, 10, 30, 100)
WORTH_CLASSES = (3, 5, 10, 30, 100)
ROWS = (1_000, 10_000, 100_000, 1_000_000)
EPSILONS = ("0.5", "1", "2", "4")
TRUTHS = {"uniform": 0.0, "Zipf 1": 1.0, "Zipf 2": 2.0, "Zipf 3": 3.0}
RUNS = 5


def truth(exponent: float, k: int, rng: np.random.Generator) -> FloatArray:
    """float64[k]: shares that fall as ranks to the power of `exponent`, in random order."""
    shares = np.arange(1, k + 1, dtype=np.float64) ** -exponent
    return rng.permutation(shares / shares.sum())


def gain(p: FloatArray, n: int, epsilon: Epsilon, rng: np.random.Generator) -> float:
    """φ² with a bought prior over φ² without one, for one draw of n labels of shares `p` float64[k]."""
    domain = Domain.from_names([f"class {i}" for i in range(p.size)])
    plan = class_prior("auto", k=p.size, n=n, epsilon=epsilon)
    prior = estimate_prior(rng.multinomial(n, p), plan.epsilon, plan.cells)
    bought = choose(domain, prior, epsilon - plan.epsilon, LOG, n).channel
    plain = choose(domain, np.full(p.size, 1.0 / p.size), epsilon, LOG, n).channel
    return share_of_information(bought, p) / share_of_information(plain, p)


def measured(k: int, n: int, epsilon: Epsilon, runs: int, rng: np.random.Generator) -> dict[str, float]:
    """The geometric mean gain for each truth."""
    return {
        name: math.exp(float(np.mean([math.log(gain(truth(exponent, k, rng), n, epsilon, rng)) for _ in range(runs)])))
        for name, exponent in TRUTHS.items()
    }


def worth(k: int, epsilon: Epsilon, rng: np.random.Generator) -> dict[str, str]:
    """A row of the second table."""
    domain, even = Domain.from_names([f"class {i}" for i in range(k)]), np.full(k, 1.0 / k)

    def channel(name: str, p: FloatArray) -> Channel:
        return MECHANISMS[name].design(domain, p, epsilon, LOG, {}, 1)

    subsets = channel("subset-selection", even)
    assert isinstance(subsets, SubsetChannel)
    row = {"k": str(k), "epsilon": str(epsilon), "d of k": str(subsets.d), "outputs": str(subsets.m)}
    for name, exponent in TRUTHS.items():
        p = truth(exponent, k, rng)
        best = max(share_of_information(channel(other, p), p) for other in ("rr", "rr-with-prior"))
        row[name] = f"{share_of_information(subsets, p) / best:.2f}"
    odds, d, plain = math.exp(float(epsilon)), subsets.d, channel("rr", even)
    ideal = (k * (d * odds**2 + k - d) / (d * odds + k - d) ** 2 - 1.0) / (k - 1)
    row["all subsets"] = f"{ideal / share_of_information(plain, even):.2f}"
    return row | {"variance": f"{_variance(plain) / _variance(subsets):.2f}"}


def _variance(channel: Channel) -> float:
    """Variance of unbiased shares of uniform classes, all together, for one row."""
    matrix = channel.matrix()
    shares = matrix.mean(axis=0)
    inverse = np.linalg.inv((matrix / shares) @ matrix.T)
    return float(np.trace(inverse)) - 1.0 / channel.k


def _table(out: Path, name: str, rows: list[dict[str, Any]]) -> str:
    with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    return "\n".join(lines + ["| " + " | ".join(str(value) for value in row.values()) + " |" for row in rows])


def run(out: Path, quick: bool) -> None:
    rng, rows = np.random.default_rng(20260101), list[dict[str, Any]]()
    for k in CLASSES[:3] if quick else CLASSES:
        for text in EPSILONS:
            for n in ROWS[:2] if quick else ROWS:
                epsilon = Epsilon.parse(text)
                found = measured(k, n, epsilon, 2 if quick else RUNS, rng)
                mean = math.exp(sum(map(math.log, found.values())) / len(found))
                row = {"k": k, "epsilon": text, "n": n} | {name: round(value, 2) for name, value in found.items()}
                rows.append(row | {"mean": round(mean, 2), "bought": "yes" if buys_prior(k, n, epsilon) else "no"})
    gains = [worth(k, Epsilon.parse(text), rng) for k in WORTH_CLASSES for text in ("0.1", *EPSILONS)]
    tables = _table(out, "classes", rows), _table(out, "classes-by-subsets", gains)
    text = f"# Classes\n\n{(__doc__ or '').strip()}\n\n## With a prior\n\n{tables[0]}\n\n## By subsets\n\n{tables[1]}\n"
    (out / "classes.md").write_text(text, encoding="utf-8")
    print(text)
