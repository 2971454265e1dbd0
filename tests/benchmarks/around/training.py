"""Training: what the default model takes and gives, beside one booster of the rule's size, from the same message.

All rows of each data set, a message by `auto`, one thread. Seconds are of a processor. The one booster is what
`--model trees` trains. Members without a weight are not listed.
"""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training.correction import correct
from features_party.training.model import TrainedModel
from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.message import draw, make_message
from tests.benchmarks.utility.sources import Split, split
from tests.support.training import fit

FloatArray = npt.NDArray[np.float64]

DATA = ("bike", "census", "retail")
EPSILONS = ("0.5", "1", "2")
QUICK_ROWS = 2000


def fitted(data: Split, model: str, labels: FloatArray, noise: float, unbiased: bool) -> tuple[TrainedModel, float]:
    """The model, and the seconds of a processor that it took."""
    began = time.process_time()
    found = fit(
        data.features,
        labels,
        noise_variance=noise,
        domain=data.domain,
        model=model,
        unbiased=unbiased,
        threads=1,
    )
    return found, time.process_time() - began


def measured(name: str, epsilon: str, rows: int) -> dict[str, Any]:
    data = split(name, 0, rows)
    message = make_message(Cell("train", name, 0, epsilon, "auto", correction="auto"), data)
    outputs = draw(message, data)
    shares = np.bincount(outputs, minlength=message.channel.m) / data.n
    correction = correct(message.channel, "auto", message.prior, shares, data.n)
    labels = correction.corrected[outputs]
    figures: dict[str, Any] = {"data": name, "epsilon": epsilon, "rows": data.n, "real": data.real}
    for model, of in (("ensemble", "default"), ("trees", "quick")):
        found, seconds = fitted(data, model, labels, correction.noise_variance, correction.comparable)
        predictions = found.predict(data.test_features, threads=1)
        figures[f"{of}_seconds"] = round(seconds, 1)
        figures[f"{of}_mse"] = round(float(np.mean((predictions - data.test_labels) ** 2)), 3)
        if of == "default":
            figures["members"] = ", ".join(dict.fromkeys(m["name"] for m in found.body.members() if m["weight"] > 0))
    return figures


def run(out: Path, quick: bool) -> None:
    rows = [
        measured(name, epsilon, QUICK_ROWS if quick else 0)
        for name in (DATA[:1] if quick else DATA)
        for epsilon in (EPSILONS[1:2] if quick else EPSILONS)
    ]
    lines = [
        "| data | rows | ε | default: CPU s | test MSE | one booster: CPU s | test MSE | members |",
        "|---" * 8 + "|",
    ]
    for r in rows:
        figures = (r["default_seconds"], r["default_mse"], r["quick_seconds"], r["quick_mse"])
        name = r["data"] if r["real"] else f"{r['data']} (stand-in)"
        cells = (name, f"{r['rows']:,}", r["epsilon"], *(f"{figure:g}" for figure in figures), r["members"])
        lines.append(f"| {' | '.join(cells)} |")
    text = "\n".join(["# Training time", "", (__doc__ or "").strip(), "", *lines, ""])
    print(text)
    (out / "training.md").write_text(text, encoding="utf-8")
    with (out / "training.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
