"""What choosing by itself costs: the mechanism `auto` against the best single one that a seer would have asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tests.benchmarks.utility.cells import INFINITE
from tests.benchmarks.utility.grid import AUTO, cell_of
from tests.benchmarks.utility.results import Results, Table, short
from tests.benchmarks.utility.table_errors import columns_of, member_of

ALLOWED = 1.03


def tables(results: Results) -> Iterator[Table]:
    header = ["data", "ε", "auto", "chosen", "best single", "its error", "auto / best", "± (paired)", f"≤ {ALLOWED}"]
    table = Table("auto", "auto against the best single mechanism, test error", header)
    table.notes.append(
        "From the cells of Table 1 (one model of the capacity rule for all). The best of many noisy means is picked "
        "after the fact, which favours it: the ratio's standard error over seeds says how far to trust it."
    )
    settings = results.settings
    if not AUTO.known:
        return
    for data in settings.data:
        member = member_of(data)
        singles = [column for column in columns_of(data) if column.mechanism != "auto"]
        for epsilon in settings.grid(data):
            cell = cell_of(AUTO, data, epsilon, settings)
            ours = results.mean(cell, member)
            means = {c.title: results.mean(cell_of(c, data, epsilon, settings), member) for c in singles}
            there = {title: mean for title, mean in means.items() if len(mean.values) == len(ours.values)}  # same seeds
            if epsilon == INFINITE or not ours or not there:
                continue
            title = min(there, key=lambda name: there[name].mean)
            best = there[title]
            ratio = ours.mean / best.mean
            pairs = np.array(ours.values) / np.array(best.values)
            error = float(pairs.std(ddof=1) / math.sqrt(len(pairs))) if len(pairs) > 1 else math.nan
            chosen = " / ".join(sorted({result["chosen"] for result in results.of(cell)}))
            row = [data, epsilon, str(ours), chosen, title, str(best), f"{ratio:.3f}"]
            table.rows.append(
                [*row, f"{error:.3f}" if math.isfinite(error) else "–", "yes" if ratio <= ALLOWED else "no"]
            )
            table.records.append(
                {"data": data, "epsilon": epsilon, "figure": member, "auto": short(ours.mean), "chosen": chosen}
                | {"best": title, "best_error": short(best.mean), "ratio": short(ratio), "ratio_error": short(error)}
                | {"seeds": len(pairs)}
            )
    yield table
