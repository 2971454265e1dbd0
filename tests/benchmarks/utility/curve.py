"""Cells of a learning curve: the default model without privacy on some of the rows, judged on the whole test set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.sources import split
from tests.benchmarks.utility.training import errors, fitted


def curve(cell: Cell) -> dict[str, Any]:
    """`cell.rows` of the training rows, chosen at random by seed; 0 or too many: all of them."""
    data = split(cell.data, cell.seed)
    if 0 < cell.rows < data.n:
        some = np.sort(np.random.default_rng(cell.seed).permutation(data.n)[: cell.rows])
        data = replace(data, features=data.features.take(some), index=data.index[some], truth=data.truth[some])
    predictions = fitted(cell, data, data.truth, 0.0, True, None)
    return errors(predictions, data.test_labels) | {"rows": data.n}
