"""The data of a cell: an 80/20 split by seed, features without ids, labels as mechanism and test see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from label_dp.domain import Domain
from tests.benchmarks.utility.sales import KINDS as SALES
from tests.benchmarks.utility.sales import sales
from tests.support import real_data
from tests.support.real_data import ID, Task

FloatArray = npt.NDArray[np.float64]

TASKS: dict[str, Callable[[int], Task]] = {
    "census": real_data.census,
    "retail": real_data.retail,
    "bike": real_data.bike,
    "claims": real_data.claims,
    "retail-absolute": real_data.retail,
}
PAPER = ("criteo", "census1940")
# elsewhere the squared loss, as the paper's tables judge
TRAINED_WITH = {"claims": "poisson", "retail-absolute": "absolute"}
FIGURES = {"claims": "poisson", "retail-absolute": "mae"}  # what is judged, elsewhere the mean squared error
_files: dict[str, Path] = {}


@dataclass(frozen=True)
class Split:
    """`index` int64[n] positions in the domain and `truth` float64[n] of the training labels, clipped and rounded down
    as the mechanism sees them; `test_labels` float64[m], clipped. `loss` is what models are trained and judged by."""

    name: str
    domain: Domain
    loss: str
    real: bool
    features: pa.Table
    index: npt.NDArray[np.int64]
    truth: FloatArray
    test_features: pa.Table
    test_labels: FloatArray
    categorical: tuple[str, ...] = ()
    network: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n(self) -> int:
        return len(self.index)

    @property
    def histogram(self) -> FloatArray:
        """float64[k]: shares of the true training labels, which only this harness may know."""
        return np.bincount(self.index, minlength=self.domain.k) / self.n


def mark(name: str) -> str:
    """Changes with the data's files: a cell of a stand-in, or of another file, is not one of these."""
    files = [_files[name]] if name in _files else sorted(real_data.DATA.glob("*.parquet"))
    return " ".join(f"{path.name} {path.stat().st_size}" for path in files)


def use_files(files: Mapping[str, Path]) -> None:
    """Where the paper's own data lies, by name of `PAPER`; every worker process calls it."""
    _files.update(files)


@lru_cache(maxsize=2)
def split(name: str, seed: int, rows: int = 0) -> Split:
    """At most `rows` training rows (0: all) and half as many test rows, chosen at random by seed."""
    if name in _files:
        return _of_paper(name, seed, rows)
    task = sales(name, seed) if name in SALES else TASKS[name](seed)
    names = [ID, task.label]
    train, test = _some(task.train, rows, seed), _some(task.test, rows // 2, seed)
    return _split(
        name,
        task.domain,
        TRAINED_WITH.get(name, "squared"),
        task.real,
        (train.drop_columns(names), train[task.label].to_numpy()),
        (test.drop_columns(names), test[task.label].to_numpy()),
    )


def _of_paper(name: str, seed: int, rows: int) -> Split:
    from tests.benchmarks.utility import paper

    source = _paper_source(paper, name)
    held_out = np.random.default_rng(seed).random(len(source.labels)) < real_data.TEST_SHARE
    sides = []
    for side, most in ((~held_out, rows), (held_out, rows // 2)):
        at = np.flatnonzero(side)
        at = at if not most or len(at) <= most else np.sort(np.random.default_rng(seed).permutation(at)[:most])
        sides.append((source.features.take(at), np.asarray(source.labels)[at]))
    made = _split(name, source.domain, source.loss, True, sides[0], sides[1])
    return replace(made, categorical=source.categorical, network=source.network)


@lru_cache(maxsize=1)
def _paper_source(paper: Any, name: str) -> Any:
    load = {"criteo": paper.load_criteo, "census1940": paper.load_census1940}[name]
    return load(_files[name])


def _split(
    name: str,
    domain: str,
    loss: str,
    real: bool,
    train: tuple[pa.Table, npt.NDArray[Any]],
    test: tuple[pa.Table, npt.NDArray[Any]],
) -> Split:
    parsed = Domain.parse(domain)
    low, high = float(parsed.values[0]), float(parsed.values[-1])
    index, _ = parsed.index(train[1].astype(np.float64))
    test_labels = np.clip(test[1].astype(np.float64), low, high)
    return Split(name, parsed, loss, real, train[0], index, parsed.values[index], test[0], test_labels)


def _some(table: pa.Table, most: int, seed: int) -> pa.Table:
    if not most or table.num_rows <= most:
        return table
    return table.take(np.sort(np.random.default_rng(seed).permutation(table.num_rows)[:most]))
