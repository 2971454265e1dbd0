"""Cells that need no model: label losses over many private priors, and the density of true and randomized labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from label_dp.losses import get_loss
from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.message import make_message
from tests.benchmarks.utility.sources import split

PRIORS = 30
CELLS_OF_DENSITY = 122  # of the randomized label, from the least to the largest output or label


def prior_loss(cell: Cell) -> dict[str, Any]:
    """Expected label loss under the true histogram, over `PRIORS` priors that were each estimated anew."""
    data = split(cell.data, cell.seed, cell.rows)
    losses, made = [], None
    for _ in range(PRIORS):
        made = make_message(cell, data)
        losses.append(float(made.channel.expected_loss(data.histogram, get_loss("squared"))))
    assert made is not None
    return {
        "label_mse": float(np.mean(losses)),
        "label_mse_std": float(np.std(losses, ddof=1)),
        "label_mse_worst": max(losses),
        "epsilon_prior": str(made.plan.split.prior),
        "real": data.real,
    }


def joint_density(cell: Cell) -> dict[str, Any]:
    """P[true label, randomized label] under the true histogram: k rows, the output in cells of equal width."""
    data = split(cell.data, cell.seed, cell.rows)
    made = make_message(cell, data)
    low, high = float(data.domain.values[0]), float(data.domain.values[-1])
    low, high = min(low, float(made.channel.outputs.min())), max(high, float(made.channel.outputs.max()))
    edges = np.linspace(low, high, CELLS_OF_DENSITY + 1)
    at = np.clip(np.searchsorted(edges, made.channel.outputs, side="right") - 1, 0, CELLS_OF_DENSITY - 1)
    density = np.zeros((data.domain.k, CELLS_OF_DENSITY))
    step = max(1, (1 << 20) // made.channel.m)
    for start in range(0, data.domain.k, step):
        rows = made.channel.rows(start, min(start + step, data.domain.k))
        for offset, row in enumerate(rows):
            density[start + offset] = np.bincount(at, weights=row, minlength=CELLS_OF_DENSITY)
    density *= data.histogram[:, None]
    return {
        "density": [[float(f"{p:.4g}") for p in row] for row in density],
        "labels": data.domain.values.tolist(),
        "edges": edges.tolist(),
        "outputs": made.channel.outputs.tolist() if made.channel.m <= 64 else None,
        "label_mse": float(made.channel.expected_loss(data.histogram, get_loss("squared"))),
        "real": data.real,
    }
