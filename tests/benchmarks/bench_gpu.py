"""The paper's network (13 numbers, 26 categories) on a GPU beside one CPU core's preparation. Without PyTorch and a GPU
this part says so and measures nothing."""

from __future__ import annotations

import importlib.util
import time

import numpy as np
import pyarrow as pa

from features_party.training.learners.mlp_fit import NetworkSettings
from tests.benchmarks.lines import Line
from tests.support.training import fit

ROWS, EPOCHS = 10_000_000, 10
NUMBERS, CATEGORIES, VALUES = 13, 26, 10_000
WANTED_RATE, MOST_PREPARATION, MOST_SECONDS = 4e6, 3.0, 40.0


def obstacle() -> str:
    """Return why nothing can be measured here; empty if something can."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed: pip install torch"
    import torch

    return "" if torch.cuda.is_available() else "there is no GPU here"


def clicks(rows: int, seed: int = 0) -> tuple[pa.Table, np.ndarray]:
    """Made-up clicks and their labels, 0 to 10: categories by Zipf's law, labels of two columns of each kind."""
    random = np.random.default_rng(seed)
    numbers = random.standard_normal((NUMBERS, rows), dtype=np.float32)
    codes = [(random.zipf(1.3, rows) % VALUES).astype(np.int32) for _ in range(CATEGORIES)]
    columns = {f"number_{i}": pa.array(column) for i, column in enumerate(numbers)}
    columns |= {f"category_{i}": pa.array([f"v{v}" for v in range(VALUES)]).take(pa.array(column))
                for i, column in enumerate(codes)}  # fmt: skip
    labels = np.clip(np.rint(3 + numbers[0] + 2 * (codes[0] % 3 == 0) + random.standard_normal(rows)), 0, 10)
    return pa.table(columns), labels.astype(np.float64)


def lines(rows: int = ROWS) -> list[Line]:
    """Preparation, rows a second of the loop, and all of it for some epochs."""
    if why := obstacle():
        return [Line("nothing was measured", 0.0, "", note=why)]
    return measured(rows)


def measured(rows: int) -> list[Line]:
    """The same, on a CPU where there is no GPU."""
    table, labels = clicks(rows)
    fit(table.slice(0, 10_000), labels[:10_000], model="mlp", settings=NetworkSettings(epochs=1))  # starts the library
    seconds = []
    for epochs in (0, EPOCHS):
        began = time.perf_counter()
        fit(table, labels, model="mlp", settings=NetworkSettings(epochs=epochs, batch_size=8192))
        seconds.append(time.perf_counter() - began)
    name, loop = f"{rows:,} rows × {NUMBERS + CATEGORIES}", seconds[1] - seconds[0]
    return [
        Line(f"{name}, preparation", seconds[0], "s", wanted=MOST_PREPARATION),
        Line(f"{name}, loop", EPOCHS * rows / loop, "rows/s", wanted=WANTED_RATE, more=True),
        Line(f"{name}, {EPOCHS} epochs", seconds[1], "s", wanted=MOST_SECONDS),
    ]
