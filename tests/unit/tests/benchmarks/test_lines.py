"""What `make bench` prints, keeps and compares."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import __main__ as bench
from tests.benchmarks.capacity import fit, report
from tests.benchmarks.children import measured
from tests.benchmarks.lines import Line, read, slips, write

pytestmark = pytest.mark.extended

SLOW = Line("join", 30.0, "s", "DuckDB", 1.5, wanted_ratio=2.0)
SPEED = Line("draw", 80.0, "M labels/s", "numpy", 0.4, wanted=50.0, more=True)


@pytest.mark.parametrize(
    ("line", "met"),
    [
        (SLOW, True),
        (Line("join", 30.0, "s", "DuckDB", 2.5, wanted_ratio=2.0), False),
        (Line("join", 30.0, "s", wanted=20.0), False),
        (Line("join", 20.0, "s", wanted=20.0), True),
        (SPEED, True),
        (Line("draw", 49.0, "M labels/s", wanted=50.0, more=True), False),
        (Line("join", 30.0, "s"), None),
    ],
)
def test_a_bound_is_met_on_the_side_that_is_better(line: Line, met: bool | None) -> None:
    assert line.met is met
    assert ("NO" in line.text()) == (met is False)


def test_what_is_kept_is_read_back_and_other_sections_stay(tmp_path: Path) -> None:
    path = tmp_path / "new" / "bench.json"
    write(path, {"join": [SLOW]}, "here")
    write(path, {"sampler": [SPEED]}, "here")
    assert read(path) == {"join": [SLOW], "sampler": [SPEED]}


def test_only_ratios_that_got_worse_are_said() -> None:
    kept = [SLOW, SPEED, Line("start", 1.0, "s"), Line("gone", 1.0, "s", "numpy", 1.0)]
    machine = [Line("join", 90.0, "s", "DuckDB", 1.6), Line("draw", 20.0, "M labels/s", "numpy", 0.5, more=True)]
    assert slips(machine, kept[:3]) == []
    worse = [Line("join", 9.0, "s", "DuckDB", 3.0), Line("draw", 90.0, "M labels/s", "numpy", 0.1, more=True)]
    assert slips(worse, kept) == [
        "draw: 0.10 × numpy, was 0.40: 4.00 times as bad",
        "join: 3.00 × DuckDB, was 1.50: 2.00 times as bad",
        "gone: in one of the two runs only",
    ]


def test_sizes_of_one_name_are_compared_each_with_its_own() -> None:
    small, large = (Line("join, CPU", 1.0, "s", "DuckDB", ratio, size=n) for n, ratio in ((10, 9.0), (1000, 1.0)))
    assert slips([small, large], [large, small]) == []


def test_the_fit_finds_what_a_run_and_a_row_take() -> None:
    sizes = np.array([1e5, 1e6, 1e7])
    found = fit(sizes, 2 + 3e-6 * sizes)
    assert (found.fixed, found.each) == pytest.approx((2, 3e-6))
    assert found.error < 1e-9
    assert fit(sizes, 1e-6 * sizes - 0.01).fixed == 0
    more_is_less = fit(sizes, [5.0, 5.1, 4.9])
    assert (more_is_less.fixed, more_is_less.each) == (0.0, 4.9 / max(sizes))


def test_the_capacity_page_holds_what_the_command_prints() -> None:
    page = Path(bench.__file__).parents[2] / "deploy" / "CAPACITY.md"
    assert report(read(bench.KEPT)["growth"]) in page.read_text(encoding="utf-8")


def test_the_command_compares_and_its_exit_code_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run: list[Line] = [SLOW]
    monkeypatch.setattr(bench.importlib, "import_module", lambda _: type("Module", (), {"lines": lambda: run}))
    kept = str(tmp_path / "kept.json")
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "join", "--json", kept])
    assert bench.main() == 0
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "join", "--compare", kept])
    assert bench.main() == 0
    assert capsys.readouterr().out.endswith("No ratio is worse than what was kept.\n")
    run[:] = [Line("join", 30.0, "s", "DuckDB", 15.0)]
    assert bench.main() == 1
    assert "Join: join: 15.00 × DuckDB, was 1.50: 10.00 times as bad" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["bench", "--compare", str(tmp_path / "none.json")])
    with pytest.raises(SystemExit):
        bench.main()


@pytest.mark.processes
def test_a_child_is_measured_alone_and_its_failure_told() -> None:
    held = np.ones(40 << 20)  # 320 MiB here are not the child's
    used = measured([sys.executable, "-c", "x = bytearray(64 << 20)"])
    assert held.size
    assert 64 < used.peak < 200
    assert 0 < used.cpu < 60
    with pytest.raises(RuntimeError, match="failed"):
        measured([sys.executable, "-c", "raise SystemExit(3)"])
