"""`make bench`: every benchmark, one line a figure; ratios are against what is named in the same line."""

from __future__ import annotations

import platform

from tests.benchmarks import (
    bench_command,
    bench_intake,
    bench_join,
    bench_privatize,
    bench_sampler,
    bench_solver,
    bench_spark,
    bench_start,
)


def main() -> None:
    print(f"{platform.machine()}, Python {platform.python_version()}\n")
    for title, module in (
        ("Solver", bench_solver),
        ("Sampler", bench_sampler),
        ("Command line", bench_command),
        ("Start", bench_start),
        ("Labels intake", bench_intake),
        ("Join", bench_join),
        ("Privatize", bench_privatize),
        ("Spark", bench_spark),
    ):
        print(title)
        for name, figure, note in module.rows():
            print(f"  {name:<42} {figure:>9.2f} {note}", flush=True)
        print()


if __name__ == "__main__":
    main()
