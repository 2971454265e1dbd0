"""`make tables`, part rows: where a learning curve has an error, and the table beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.benchmarks.utility import __main__ as command
from tests.benchmarks.utility import table_gap, table_losses, table_rows
from tests.benchmarks.utility.cells import INFINITE, Cell
from tests.benchmarks.utility.curve import curve
from tests.benchmarks.utility.grid import Settings
from tests.benchmarks.utility.results import Results
from tests.benchmarks.utility.store import Result

pytestmark = pytest.mark.extended

CURVE, ERRORS = [100, 1000, 10_000], [40.0, 20.0, 10.0]


@pytest.mark.parametrize(("error", "rows"), [(20.0, 1000.0), (15.0, 1000 * 10**0.5), (99.0, 100.0), (1.0, 10_000.0)])
def test_an_error_is_found_on_the_curve_or_at_its_ends(error: float, rows: float) -> None:
    assert table_rows.rows_for(error, CURVE, ERRORS) == pytest.approx(rows)


def test_where_a_curve_rises_again_it_counts_as_flat() -> None:
    assert table_rows.rows_for(15.0, CURVE, [40.0, 10.0, 20.0]) == table_rows.rows_for(15.0, CURVE, [40.0, 10.0, 10.0])


def test_rows_of_a_table_are_those_of_whole_seeds() -> None:
    settings = Settings(data=("bike",), seeds=2, epsilons=("1", INFINITE))
    wanted = list(table_rows.cells(settings))
    found: dict[Cell, Result] = {}
    for cell in wanted:
        if cell.kind == "curve":
            rows = cell.rows or 10_000
            found[cell] = {"rows": rows, "mse": 400_000.0 / rows}
        else:
            found[cell] = {"mse": 400.0, "corrected_noise": 360.0}
    del found[wanted[-1]]  # the second seed's message
    (table,) = table_rows.tables(Results(found, settings))
    (row,) = table.rows
    assert row == ["bike", "1", "400.0", "10\u202f000", "1\u202f000", "10.0%", "10.0%"]
    assert table.records[0]["seeds"] == 1


def test_a_point_of_a_curve_is_judged_on_all_test_rows() -> None:
    settings = Settings(data=("bike",), quick=True)
    few = replace(table_rows._curve("bike", settings)[0], rows=200)
    found = curve(few)
    assert found["rows"] == 200
    assert 0 < found["mse"] < 40_000
    assert curve(few) == found


def test_goals_of_a_loss_are_shares_of_what_a_constant_leaves() -> None:
    settings = Settings(data=("claims",), seeds=2, epsilons=("1", INFINITE))
    found: dict[Cell, Result] = {}
    for cell in table_losses.cells(settings):
        figure = {"auto": 0.15, "rr-on-bins": 0.19, "none": 0.14}[cell.mechanism]
        found[cell] = {
            "poisson": figure - 0.004 * cell.seed * (cell.mechanism == "auto"),
            "constant_poisson": 0.16,
            "chosen": "one-bit",
        }
    (table,) = table_losses.tables(Results(found, settings))
    (row,) = table.rows
    assert row[-3:] == ["60.0% ± 14.1%", "≥ 50%", "yes"]
    assert table.records[0]["bins_mean"] == 0.19
    assert table_gap.data_of(settings) == []


def test_a_strange_part_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "gap,columns"]) == 2
    assert "no part 'columns'; there are gap, rows," in capsys.readouterr().err
