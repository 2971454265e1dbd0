"""The paper's own data, from the files that its publishers hand out to what the tables and the network need."""

from __future__ import annotations

from tests.benchmarks.utility.paper.census1940 import load_census1940
from tests.benchmarks.utility.paper.criteo import load_criteo
from tests.benchmarks.utility.paper.source import Source

__all__ = ["Source", "load_census1940", "load_criteo"]
