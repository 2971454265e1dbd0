"""What the seal of the n-th batch of one size costs by its comparison with all batches before, in few merged runs.

Beside it stands a run for each batch, which is what a seal read before there were merged ones. Batches have random
digests; the merges are waited for, so that the CPU of a comparison is its own.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from labels_party.bootstrap import bootstrap
from labels_party.labels.digests import LOADED_AFTER, kernels
from labels_party.labels.runs import Run, among, sort_run
from labels_party.settings import Settings
from tests.benchmarks.lines import Line
from tests.support.history import Past

IDS = 20_000
SHOWN = (1, 2, 4, 8, 16, 32, 63, 64, 128, 200, 256, 400, 511, 512)  # one before eights are merged is the dearest
ROUNDS = 5
MANY = 63  # batches from which a ratio tells more of the comparison than of the query before it
PREFIXED = 400


def digests(rng: np.random.Generator) -> Run:
    low, high = rng.integers(0, 1 << 63, (2, IDS), np.uint64) << np.uint64(1)
    return sort_run(low, high)[0]


def cpu(work: Callable[[], object]) -> float:
    """Milliseconds of CPU, the least of some rounds."""
    found = []
    for _ in range(ROUNDS):
        before = time.process_time()
        work()
        found.append(1e3 * (time.process_time() - before))
    return min(found)


def lines(shown: tuple[int, ...] = SHOWN) -> list[Line]:
    """About a minute."""
    rng = np.random.default_rng(1)
    kernels.expect(LOADED_AFTER)  # as in a service that has been up for a while
    with tempfile.TemporaryDirectory() as name:
        services = bootstrap(Settings(home=Path(name) / "home"))
        try:
            return [*_merged(Past(services, "merged"), rng, shown), *_prefixed(Past(services, "prefixed"), rng)]
        finally:
            services.close()


def _merged(past: Past, rng: np.random.Generator, shown: tuple[int, ...]) -> list[Line]:
    sealer, vault = past.services.sealer, past.services.vault
    found, merging = [], 0.0
    for n in range(1, max(shown) + 1):
        past.seal(digests(rng))
        before = time.process_time()
        sealer.compaction.wait()
        merging += time.process_time() - before
        if n not in shown:
            continue
        batch, run = past.draft(), digests(rng)
        took = cpu(lambda batch=batch, run=run: sealer.disjoint.check(batch, run))
        own = past.services.database.read(
            "bench.own", lambda c, batch=batch: sealer.disjoint.history.since(c, batch, 0)
        )
        apart = cpu(lambda own=own, run=run: among(run, (vault.run(segment.key) for _, segment in own)))
        opened = past.runs()
        found += [
            Line("comparison, CPU", took, "ms", "a run for each batch", took / apart if n >= MANY else None, size=n),
            Line("a run for each batch, CPU", apart, "ms", size=n),
            Line("comparison, opened", opened, "runs", "log₂ n + 1", opened / (np.log2(n) + 1), size=n),
        ]
    first, *later = (line for line in found if line.name == "comparison, CPU")
    dearest = max(later, key=lambda line: line.figure)
    assert first.size
    assert dearest.size
    doublings = float(np.log2(dearest.size / first.size))
    opened_at_most = max(line.ratio or 0.0 for line in found if line.name == "comparison, opened")
    each = (dearest.figure / first.figure - 1) / doublings
    told = f"{dearest.figure:.1f} ms at {dearest.size} batches of {IDS:,}, {first.figure:.1f} ms at {first.size}"
    return [
        *found,
        Line("growth a doubling of the batches", each, "times one", wanted=3, note=told),
        Line("runs opened at most", opened_at_most, "× log₂ n + 1", wanted=3),
        Line("merging, CPU a batch", 1e3 * merging / max(shown), "ms", note="in the background"),
    ]


def _prefixed(past: Past, rng: np.random.Generator) -> list[Line]:
    """As many batches, each with a prefix of its own."""
    for day in range(PREFIXED):
        past.seal(digests(rng), f"{day}/")
    past.services.sealer.compaction.wait()
    batch, run = past.draft("today/"), digests(rng)
    took = cpu(lambda: past.services.sealer.disjoint.check(batch, run))
    return [
        Line("comparison under a prefix of its own, CPU", took, "ms", note=f"after {PREFIXED} batches"),
        Line("opened under a prefix of its own", past.runs("today/"), "runs", note=f"after {PREFIXED} batches"),
    ]
