"""Cells of sums by public codes: codes chosen without labels, noisy sums as the labels party draws them, one model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from features_party.companions.codes import choose_codes, learn_codes
from features_party.companions.sum_models import CellTotals, model_of
from features_party.tables.feature_tables import FeatureTable
from label_dp.channels.model_error import sums_below
from label_dp.companions.kinds.sum import LabelLattice
from label_dp.privacy import Epsilon
from labels_party.mechanisms.entropy import LaplaceNoise, discrete_laplace
from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.sources import split


def codes(cell: Cell) -> dict[str, Any]:
    """The test error of the model of one draw, its estimated gain and the true one, and what the rule of thumb says."""
    data, epsilon = split(cell.data, cell.seed, cell.rows), Epsilon.parse(cell.epsilon)
    ids = pa.array([str(i) for i in range(data.n)])
    table = choose_codes(learn_codes(FeatureTable(ids, data.features, "id")), epsilon)
    groupings, lattice = table.codes.groupings, LabelLattice.of(data.domain)
    noise = LaplaceNoise(lattice.sensitivity, epsilon.fraction / len(groupings))
    low, unit, scale = float(lattice.low), float(lattice.unit), float(noise.sensitivity / noise.epsilon)
    totals = []
    for grouping in groupings:
        cells = table.cells(grouping)
        rows = np.bincount(cells)
        seen = np.flatnonzero(rows)
        sums = np.bincount(cells, np.round((data.truth - low) / unit))[seen] + discrete_laplace(noise, len(seen))
        totals.append(CellTotals(grouping, seen, low * rows[seen] + unit * sums, 2.0 * (unit * scale) ** 2))
    model, estimate = model_of(table, totals, data.n, data.domain)
    error = (model.predict(data.test_features) - data.test_labels) ** 2
    gain = estimate.mse_below_constant
    return {
        "rows": data.n,
        "test_rows": len(data.test_labels),
        "real": data.real,
        "mse": float(np.mean(error)),
        "constant_mse": float(np.mean((data.truth.mean() - data.test_labels) ** 2)),
        "gain": gain.estimate,
        "gain_low": gain.low,
        "gain_high": gain.high,
        "true_gain": float(np.mean((model.mean - data.test_labels) ** 2) - np.mean(error)),
        "codes": len(groupings),
        "sums_below": sums_below(data.n, len(groupings)),
    }
