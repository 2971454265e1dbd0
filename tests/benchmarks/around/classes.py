"""Classes: whether a private prior is worth its ε, by the share of information that is left of the labels.

Each cell is φ² of what `auto` would draw with a bought prior, over φ² of randomized response on all classes with the
whole ε: the geometric mean over draws of the labels and of the prior's noise, judged at the true shares. The truths are
`uniform` and Zipf's law with exponents 1 and 2, in random order. `mean` is the geometric mean over the three, `bought`
what the rule of `labels_party.mechanisms.classes` does, from k, n and ε alone.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.channels.information import share_of_information
from label_dp.domain import Domain
from label_dp.losses import LOG
from label_dp.privacy import Epsilon
from labels_party.mechanisms.auto import choose
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.classes import buys_prior, class_prior
from labels_party.mechanisms.prior import estimate_prior

FloatArray = npt.NDArray[np.float64]

CLASSES = (3, 10, 30, 100)
ROWS = (1_000, 10_000, 100_000, 1_000_000)
EPSILONS = ("0.5", "1", "2", "4")
TRUTHS = {"uniform": 0.0, "Zipf 1": 1.0, "Zipf 2": 2.0}
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
    plain = MECHANISMS["rr"].design(domain, None, epsilon, LOG, {}, n)
    return share_of_information(bought, p) / share_of_information(plain, p)


def measured(k: int, n: int, epsilon: Epsilon, runs: int, rng: np.random.Generator) -> dict[str, float]:
    """The geometric mean gain for each truth."""
    return {
        name: math.exp(float(np.mean([math.log(gain(truth(exponent, k, rng), n, epsilon, rng)) for _ in range(runs)])))
        for name, exponent in TRUTHS.items()
    }


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
    with (out / "classes.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(str(value) for value in row.values()) + " |" for row in rows]
    text = f"# Classes\n\n{(__doc__ or '').strip()}\n\n" + "\n".join(lines) + "\n"
    (out / "classes.md").write_text(text, encoding="utf-8")
    print(text)
