"""A tenfold slip of what is fast today: some lines of `make bench` on a small scale, with wide bounds on the ratios."""

from __future__ import annotations

import pytest

from tests.benchmarks import bench_join, bench_privatize, bench_sampler, bench_solver
from tests.benchmarks.lines import Line

pytestmark = pytest.mark.processes
SMALL = 300_000  # labels: starting is most of it, on both sides


def ratio(found: list[Line], name: str) -> float:
    (line,) = [line for line in found if line.name == name]
    assert line.ratio is not None
    return 1 / line.ratio if line.more else line.ratio


def test_the_solver_against_the_triple_loop() -> None:
    assert ratio(bench_solver.lines(large=()), "k = 401, squared") < 1  # a tenth


@pytest.mark.parametrize(("name", "most"), [("rr-on-bins", 20), ("discrete-laplace", 20), ("one-bit", 10)])
def test_draws_against_numpy(name: str, most: float) -> None:
    assert ratio([bench_sampler.pipeline_line(name, 200_000)], name) < most  # two, two and one


def test_privatize_against_duckdb() -> None:
    found = bench_privatize.lines(SMALL, rounds=1)
    assert ratio(found, f"{SMALL:,} labels, CPU") < 60  # eight, and a start that is twice as long


def test_join_against_duckdb() -> None:
    assert ratio(bench_join.lines(SMALL), "join --out, wall") < 40  # four


def test_a_slip_would_be_seen() -> None:
    """The control: the solver at a hundredfold domain is slower than the loop at k = 401."""
    bench_solver.warm_up()
    p, y = bench_solver.skewed(40_000)
    slow = bench_solver.milliseconds(lambda: bench_solver.solve_bins(p, y, 1.0), 1)
    p, y = bench_solver.skewed(401)
    loop = bench_solver.milliseconds(lambda: bench_solver.triple_loop(p, y, 1.7), 3)
    assert slow / loop > 1
