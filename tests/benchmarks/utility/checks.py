"""What must hold of every stored cell, so that a wrong one is seen and not printed as a finding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from label_dp.privacy import Epsilon
from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.results import Results

SIGMAS = 6.0  # a right draw is this far off once in 5·10⁸
SOLVED_TO = 1e-4  # relative gap of the optimum


def violations(results: Results) -> Iterator[str]:
    """One sentence for each cell that contradicts its own channel, its ε, or Theorem 5."""
    for cell, result in results.found.items():
        if "refused" in result or cell.kind != "train":
            continue
        if any(isinstance(figure, float) and not math.isfinite(figure) for figure in result.values()):
            yield f"{cell}: a figure is not finite"
        if cell.private:
            yield from _of_message(cell, result)


def _of_message(cell: Cell, result: dict[str, Any]) -> Iterator[str]:
    expected, drawn, optimum = result["label_mse"], result["label_mse_drawn"], result["label_mse_optimum"]
    allowed = SIGMAS * max(result["label_mse_error"], 1e-9 * expected)
    if not abs(expected - drawn) <= allowed:
        yield f"{cell}: the drawn label error {drawn:.6g} is not what the channel says, {expected:.6g} ± {allowed:.2g}"
    if not expected >= optimum * (1 - SOLVED_TO):
        yield f"{cell}: its label error {expected:.6g} is below {optimum:.6g}, the least of any ε-DP randomizer"
    if Epsilon.parse(result["epsilon"]["total"]) != Epsilon.parse(cell.epsilon):
        yield f"{cell}: the message was charged ε = {result['epsilon']['total']}"
