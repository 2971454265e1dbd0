"""The default training on a `balanced` message of real sales, beside trees alone on the same one: CPU and error."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from tests.benchmarks.lines import Line
from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.sources import split
from tests.benchmarks.utility.training import labels_of
from tests.support.training import fit

ROWS = 200_000
EPSILONS = ("0.5", "1", "2", "inf")
MOST_SECONDS = {"1": 30.0}


def lines(rows: int = ROWS) -> list[Line]:
    data = split("retail", 0, rows)
    cell = Cell("train", data.name, 0, "1", mechanism="balanced", rows=rows)
    few = data.truth[:1000]
    fit(data.features.slice(0, len(few)), few, model="ensemble")  # imports the libraries
    rows_of_table = []
    for epsilon in EPSILONS:
        _, labels, noise, unbiased, cells = labels_of(replace(cell, epsilon=epsilon), data)
        options = {"noise_variance": noise, "domain": data.domain, "unbiased": unbiased, "cells": cells}
        figures = {}
        for kind in ("ensemble", "trees"):
            began = time.process_time()
            model = fit(data.features, labels, model=kind, loss=data.loss, threads=1, **options)
            seconds = time.process_time() - began
            predictions = model.predict(data.test_features, threads=1)
            figures[kind] = seconds, float(np.mean((predictions - data.test_labels) ** 2))
        (seconds, error), (tree_seconds, tree_error) = figures["ensemble"], figures["trees"]
        beside = f"trees alone ({tree_seconds:.1f} s, {tree_error:.2f})"
        wanted, name = MOST_SECONDS.get(epsilon), f"{data.n:,} rows, ε {epsilon}"
        rows_of_table += [
            Line(f"{name}, CPU", seconds, "s", beside, seconds / tree_seconds, wanted),
            Line(f"{name}, test error", error, "MSE", beside, error / tree_error, wanted_ratio=1.0),
        ]
    return rows_of_table
