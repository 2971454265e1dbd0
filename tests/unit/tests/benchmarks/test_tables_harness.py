"""`make tables`: cells are computed once, a stopped run goes on, and the report says what the cells say."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.benchmarks.utility import __main__ as command
from tests.benchmarks.utility import (
    combined,
    conversions,
    coverage,
    figures,
    randomizing,
    runner,
    store,
    table_auto,
    table_combined,
    table_conversions,
    table_gap,
    training,
)
from tests.benchmarks.utility.cells import INFINITE, ROOT, TREES, Cell, digest_of, options_text
from tests.benchmarks.utility.checks import violations
from tests.benchmarks.utility.grid import AUTO, CORRECTED, RR_ON_BINS, Settings, cell_of, seeds_of
from tests.benchmarks.utility.results import Mean, Results, number
from tests.benchmarks.utility.sources import split
from tests.benchmarks.utility.store import Result, Store
from tests.support import real_data

pytestmark = pytest.mark.extended

CELLS = [Cell("train", "bike", seed, "1", mechanism="rr-on-bins") for seed in range(6)]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """Cells that were computed, by something that costs nothing."""
    done: list[Cell] = []

    def compute(cell: Cell) -> Result:
        done.append(cell)
        return {"mse": float(cell.seed), "seconds": 0.0}

    monkeypatch.setattr(runner, "compute", compute)
    return done


def test_a_stopped_run_goes_on_where_it_was(
    tmp_path: Path, counted: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Store(tmp_path / "whole.ndjson")
    runner.run(CELLS, whole)
    counted.clear()
    real = runner.compute

    def stops_after_two(cell: Cell) -> Result:
        if len(counted) == 2:
            raise KeyboardInterrupt
        return real(cell)

    part = Store(tmp_path / "part.ndjson")
    monkeypatch.setattr(runner, "compute", stops_after_two)
    with pytest.raises(KeyboardInterrupt):
        runner.run(CELLS, part)
    assert part.read().keys() == set(CELLS[:2])
    # killed in the middle of a line
    with part.path.open("ab") as file:
        file.write(b'{"cell": {"kind": "train", "da')
    monkeypatch.setattr(runner, "compute", real)
    counted.clear()
    assert runner.run(CELLS, part) == {}
    assert counted == CELLS[2:]
    assert part.read() == whole.read()
    counted.clear()
    runner.run(CELLS, part)
    assert counted == []


def test_one_broken_cell_does_not_cost_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(cell: Cell) -> Result:
        return {"mse": 1 / (cell.seed - 3)}

    monkeypatch.setattr(runner, "compute", breaks)
    kept = Store(tmp_path / "cells.ndjson")
    assert runner.run(CELLS, kept) == {CELLS[3]: "ZeroDivisionError: division by zero"}
    assert len(kept.read()) == len(CELLS) - 1


def test_changed_source_files_recompute_their_cells(
    tmp_path: Path, counted: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cells.ndjson"
    runner.run(CELLS[:1], Store(path))
    prior, trees, default = (
        Cell(kind, "bike", 0, "1", learner=name)
        for kind, name in (("prior", "full"), ("train", "quick"), ("train", "full"))
    )
    assert len({store.digest(cell) for cell in (prior, trees, default)}) == 3
    monkeypatch.setattr(store, "digest", lambda _cell: "of other files")
    assert Store(path).read() == {}
    assert list(Store(path, keep=True).read()) == CELLS[:1]
    runner.run(CELLS[:1], Store(path))
    assert counted == CELLS[:1] * 2


def test_quick_cells_are_kept_by_every_file_that_their_trees_run() -> None:
    files: set[str] = set()
    package = ROOT / "features_party" / "training"

    def called(frame: FrameType, _event: str, _argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(package) and frame.f_code.co_name != "<module>":
            files.add(path.relative_to(ROOT).as_posix())

    cell = Cell("train", "claims", 0, "1", mechanism="balanced", correction="auto", learner="quick", rows=1000)
    for one in (cell, replace(cell, data="bike", mechanism="rr-on-bins", correction="none")):
        sys.setprofile(called)
        try:
            training.train(one)
        finally:
            sys.setprofile(None)
    assert files <= set(TREES)
    assert all((ROOT / name).exists() for name in TREES)
    sys.setprofile(called)
    try:
        training.train(replace(cell, learner="full"))
    finally:
        sys.setprofile(None)
    assert not files <= set(TREES)  # the default model runs others, and is noticed


def test_stale_cells_are_counted_by_part(
    tmp_path: Path, counted: list[Cell], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cells.ndjson"
    runner.run(CELLS[:2], Store(path))
    with monkeypatch.context() as patch:
        patch.setattr(store, "digest", lambda _cell: "of other files")
        runner.run(CELLS[2:3], Store(path))
    assert command._stale({"one": set(CELLS[:2])}, Store(path)) == 0
    assert command._stale({"all": set(CELLS)}, Store(path)) == 1
    assert capsys.readouterr().out.splitlines()[-1].split() == ["all", str(len(CELLS)), "2", "1", str(len(CELLS) - 3)]
    runner.run(CELLS[2:3], Store(path))
    assert counted == [*CELLS[:3], CELLS[2]]
    assert Store(path).ages() == dict.fromkeys(CELLS[:3], True)


def test_committed_cells_are_not_computed_again(tmp_path: Path, counted: list[Cell]) -> None:
    """Later lines count, and a torn one is none."""
    path, earlier = tmp_path / "cells.ndjson", tmp_path / "cells.ndjson.gz"
    runner.run(CELLS[:2], Store(path))
    earlier.write_bytes(gzip.compress(path.read_bytes() + b'{"cell"'))
    path.unlink()
    counted.clear()
    store_of_both = Store(path, earlier=earlier)
    runner.run(CELLS[:3], store_of_both)
    assert counted == [CELLS[2]]
    store_of_both.add(CELLS[0], {"mse": 7.0})
    assert store_of_both.read()[CELLS[0]] == {"mse": 7.0}
    assert store_of_both.read().keys() == set(CELLS[:3])


def test_writers_at_once_never_mix_their_lines(tmp_path: Path) -> None:
    path, result = tmp_path / "cells.ndjson", {"why": "x" * 100_000}
    cells = [replace(CELLS[0], seed=seed) for seed in range(40)]
    with ThreadPoolExecutor(8) as pool:  # each with a handle and a lock of its own, as processes have
        list(pool.map(lambda cell: Store(path).add(cell, result), cells))
    assert all(json.loads(line)["result"] == result for line in path.read_bytes().splitlines())
    assert Store(path).read().keys() == set(cells)


def test_numbers_are_shown_to_the_place_that_matters() -> None:
    assert str(Mean((1500.0, 1502.0))) == "1\u202f501 ± 1"
    assert str(Mean((0.15234,))) == "0.1523"
    assert str(Mean(())) == "–"
    assert number(0.0) == "0.0"


def test_gap_closed_is_taken_seed_by_seed() -> None:
    settings = Settings(data=("bike",), seeds=2, epsilons=("0.5", INFINITE))
    figures = {"rr": (200.0, 300.0), "none": (100.0, 100.0), "ours": (125.0, 200.0)}
    found: dict[Cell, Result] = {}
    for cell in table_gap.cells(settings):
        term = "ours" if cell.mechanism == "auto" else "rr" if cell.private else "none"
        # only one capacity is the best one
        worse = 0.0 if cell.capacity == 1.0 else 50.0
        found[cell] = {"mse": figures[term][cell.seed] + worse, "chosen": "one-bit"}
    results = Results(found, settings)
    gap = table_gap.gap(results, "bike", "0.5")
    assert gap is not None
    assert gap.closed.values == (0.75, 0.5)  # (200 − 125)/(200 − 100) and (300 − 200)/(300 − 100)
    (table,) = table_gap.tables(results)
    (row,) = table.rows
    assert row[2:6] == ["250.0 ± 70.7", "162.5 ± 53.0", "100.0 ± 0.0", "62.5% ± 17.7%"]
    assert row[6:] == ["≥ 85%", "no", "one-bit"]
    settings = replace(settings, data=("retail",))
    found |= {replace(cell, data="retail"): result for cell, result in found.items()}
    ((*_, goal, met, _), *_) = next(table_gap.tables(Results(found, settings))).rows
    assert (goal, met) == ("MSE ≤ 88", "no")
    # a seed counts only with all of its terms
    missing = {cell: result for cell, result in found.items() if (cell.mechanism, cell.seed) != ("auto", 0)}
    part = table_gap.gap(Results(missing, settings), "bike", "0.5")
    assert part is not None
    assert part.closed.values == (0.5,)
    assert table_gap.gap(Results({}, settings), "bike", "0.5") is None


def test_auto_is_held_against_the_best_single_mechanism() -> None:
    settings = Settings(data=("bike",), seeds=2, epsilons=("1",))
    found: dict[Cell, Result] = {}
    for column, errors in ((AUTO, (103.0, 105.0)), (RR_ON_BINS, (150.0, 160.0)), (CORRECTED, (99.0, 101.0))):
        for cell, error in zip(seeds_of(cell_of(column, "bike", "1", settings), settings), errors, strict=True):
            found[cell] = {"mse": error, "chosen": "one-bit"}
    (table,) = table_auto.tables(Results(found, settings))
    (row,) = table.rows
    assert row[4] == CORRECTED.title
    assert row[6] == "1.040"
    assert row[8] == "no"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine without the data, and little patience."""
    monkeypatch.setattr(real_data, "DATA", tmp_path / "nowhere")
    monkeypatch.setattr(coverage, "REPETITIONS", 2)
    monkeypatch.setattr(randomizing, "PRIORS", 2)
    for cached in (split, digest_of):
        cached.cache_clear()
    yield tmp_path
    for cached in (split, digest_of):
        cached.cache_clear()


@pytest.mark.processes
def test_a_quick_run_makes_every_file_and_sees_planted_wrong_cells(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work, out = elsewhere / "cells.ndjson", elsewhere / "out"
    asked = ["--quick", "--jobs", "1", "--data", "census", "--epsilons", f"1,{INFINITE}"]
    asked += ["--work", str(work), "--out", str(out)]
    assert command.main(asked) == 0
    report = (out / "report.md").read_text()
    assert "a generated stand-in: its figures mean nothing" in report
    assert str(elsewhere) not in report
    assert {"figure4-census.png", "table1-census-generalization.csv", "gap.csv"} <= {p.name for p in out.iterdir()}
    stored = Store(work).read()
    settings = Settings(data=("census",), seeds=1, epsilons=("1", INFINITE), quick=True)
    results = Results(stored, settings)
    shown = str(results.mean(cell_of(CORRECTED, "census", "1", settings), "mse"))
    assert shown in report
    assert list(violations(results)) == []

    # the same report from stored cells alone
    monkeypatch.setattr(runner, "compute", lambda _cell: pytest.fail("computed again"))
    assert command.main(asked) == 0
    assert _without_times((out / "report.md").read_text()) == _without_times(report)

    # planted: a label error that the channel cannot have, one below Theorem 5's optimum, ε that was not asked for
    cell = cell_of(RR_ON_BINS, "census", "1", settings)
    right = stored[cell]
    wrong: dict[str, Result] = {
        "is not what the channel says": {"label_mse_drawn": right["label_mse"] * 1.5},
        "the least of any ε-DP randomizer": {"label_mse_optimum": right["label_mse"] * 1.01},
        "was charged ε = 2": {"epsilon": right["epsilon"] | {"total": "2"}},
        "not finite": {"mse": float("nan")},
    }
    for words, change in wrong.items():
        (seen,) = violations(Results(stored | {cell: right | change}, settings))
        assert words in seen
    Store(work).add(cell, right | wrong["was charged ε = 2"])
    assert command.main(asked) == 1
    assert "Not as it should be" in capsys.readouterr().out


def _without_times(report: str) -> list[str]:
    return [line for line in report.splitlines() if "this run took" not in line and "Made by" not in line]


def test_unknown_data_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--data", "biek"]) == 2
    assert "no data 'biek'" in capsys.readouterr().err


def test_log_loss_closed_is_per_seed_from_the_best_without_privacy() -> None:
    settings = Settings(seeds=2, epsilons=("1", INFINITE))
    losses = {INFINITE: (0.12, 0.10), "1": (0.13, 0.13)}
    constants = (0.22, 0.20)
    found: dict[Cell, Result] = {}
    for cell in table_conversions.cells(settings):
        # only one setting without privacy is the best one
        worse = 0.0 if cell.private or cell.capacity == 4.0 else 0.02
        loss = losses[cell.epsilon][cell.seed] + worse
        found[cell] = {"log_loss": loss, "constant_log_loss": constants[cell.seed], "auc": 0.95}
    results = Results(found, settings)
    share, best = table_conversions.closed(results, table_conversions.OURS, "1")
    assert best.values == pytest.approx((0.12, 0.10))
    assert share.values == pytest.approx((0.9, 0.7))
    (table,) = table_conversions.tables(results)
    met = {record["model"]: record["met"] for record in table.records if record["epsilon"] == "1"}
    assert met[table_conversions.OURS] == "no"  # 80 % are closed, 93 % are the goal
    assert list(table_conversions.cells(replace(settings, data=("bike",)))) == []


def test_several_messages_are_held_against_the_best_alone_seed_by_seed() -> None:
    settings = Settings(data=("bike",), seeds=3)
    found: dict[Cell, Result] = {}
    for cell in table_combined.cells(settings):
        case = next(name for name in combined.CASES if options_text({"case": name}) == cell.options)
        alone = [110.0, 100.0, 120.0, 130.0][: len(combined.CASES[case])]
        # the last case is worse by more than chance, the first one by less
        worse = {"few strong rows, many weak": 5.0, "one batch at two ε": 0.5}.get(case, -3.0)
        every = 100.0 + worse + (0.0, 1.0, -1.0)[cell.seed]
        found[cell] = {"mse": every, "alone": alone, "best_alone": 100.0, "difference": every - 100.0}
    (table,) = table_combined.tables(Results(found, settings))
    assert len(table.rows) == len(combined.CASES) * len(table_combined.LEARNERS)
    for record in table.records:
        assert record["kept"] == (record["case"] != "few strong rows, many weak")
        assert record["difference_error"] == pytest.approx(1.0 / 3**0.5)
    assert list(table_combined.cells(replace(settings, epsilons=("1",)))) == []


def test_a_cell_of_several_messages_judges_all_of_them_and_each(elsewhere: Path) -> None:
    """On a stand-in: that shares are dealt, prices drift and days are columns; no figure is judged."""
    settings = Settings(data=("bike",), seeds=1, quick=True)
    (cell,) = table_combined.cells(settings)
    result = runner.compute(cell)
    assert not result["real"]
    assert len(result["alone"]) == 2
    assert result["difference"] == pytest.approx(result["mse"] - min(result["alone"]))
    days = runner.compute(replace(cell, options=options_text({"case": "four days, drifting prices"})))
    assert len(days["alone"]) == 4
    data = split("bike", 0, cell.rows)
    sent = combined.CASES["four days, drifting prices"]
    received = combined._received(cell, data, sent)
    assert sorted(np.concatenate([one.rows for one in received]).tolist()) == list(range(data.n))
    assert [set(one.features["day"].to_pylist()) for one in received] == [{0.0}, {1.0}, {2.0}, {3.0}]


def test_rare_clicks_convert_at_the_rate_that_the_plan_is_asked_for() -> None:
    data = conversions.clicks(1, 400_000, 1000)
    # 400 conversions are expected: five standard errors; a correct draw fails once in 10⁶
    assert abs(data.truth.sum() - 400) < 5 * 20
    assert (data.n, len(data.test_labels)) == (400_000, 1000)
    result = conversions.rare(Cell("rare", "clicks", 1, "4", mechanism="auto", learner="linear log", rows=200_000))
    assert result["epsilon"]["total"] == "4"
    assert result["chosen"] == "rr"
    # ε = 4 flips 1.8 % of 200,000 labels, 18 times as many as convert: each counts for a twentieth or so
    assert 5 < result["positives_without_noise"] < 20


@pytest.mark.parametrize("figure", [3, 4, 6])
def test_figures_have_our_line_with_the_default_model(
    figure: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {3: "bike", 4: "claims", 6: "retail"}[figure]
    settings = Settings(data=(data,), seeds=2, epsilons=("0.5", "2", INFINITE))
    ours = list(figures.cells(settings, ["table1"]))
    of_models = [cell for cell in ours if cell.kind == "train"]
    assert {(c.mechanism, c.learner, c.epsilon, c.seed) for c in of_models} == {
        ("auto", "full", epsilon, seed) for epsilon in ("0.5", "2") for seed in (0, 1)
    }
    shown: list[list[str]] = []

    def keep(picture: Figure, _path: Path) -> None:
        shown.append([text.get_text() for text in picture.legends[0].get_texts()])

    monkeypatch.setattr(Figure, "savefig", keep)
    draw = {3: figures._figure_3, 4: figures._figure_4, 6: figures._figure_6}[figure]
    others = [cell_of(RR_ON_BINS, data, epsilon, settings) for epsilon in ("0.5", "2", INFINITE)]
    known: dict[Cell, Result] = {
        one: {"mse": 90.0, "poisson": 0.5, "label_mse": 80.0} for cell in others for one in seeds_of(cell, settings)
    }
    found = known | {key: {"mse": 70.0, "poisson": 0.4, "label_mse": 80.0} for key in of_models}
    for results in (found, known):
        assert draw(Results(results, settings), data, tmp_path / "drawn.png") is not None
    assert ["auto, default model" in titles for titles in shown] == [True, False]
    # a quick run has one model for all: no line twice
    quick = replace(settings, quick=True)
    of_auto = {c for e in ("0.5", "2") for c in seeds_of(cell_of(AUTO, data, e, quick), quick)}
    assert {c for c in figures.cells(quick, ["table1"]) if c.kind == "train"} == of_auto
