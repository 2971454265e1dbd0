"""The table beside OpenDP: both ways sum up the same labels, and cells are found in the order of their codes."""

from __future__ import annotations

import numpy as np
import pytest

from labels_party.companions.kinds import groups
from labels_party.companions.kinds.groups import GroupColumns
from tests.benchmarks.around.sums import DATA as SOURCES
from tests.benchmarks.around.sums import Report
from tests.support import real_data


@pytest.mark.parametrize("name", ["bike", "retail"])
def test_at_much_epsilon_both_ways_give_the_true_sums(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_data, "DATA", real_data.DATA / "nowhere")
    source = SOURCES[name]
    table, real = source.table()
    first, second, _ = source.columns
    report = Report(table, source.label, source.domain, [first, f"{second},{first}"], "1000000")
    assert not real
    noisy = report.noisy()
    for sums in (report.of_opendp(), noisy, report.estimates(noisy)):
        for one, truth in zip(sums, report.truth, strict=True):
            assert one == pytest.approx(truth, abs=0.05, rel=1e-9)
    assert report.truth[0].sum() == pytest.approx(report.truth[1].sum())


@pytest.mark.parametrize("places", [1, 1 << 20])
@pytest.mark.parametrize("n", [0, 1, 500])
def test_cells_are_the_different_rows_of_codes_in_order(places: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MOST_PLACES", places)
    codes = np.random.default_rng(n).integers(0, (3, 40, 5), (n, 3))
    for (cells, counts, at), columns in zip(
        GroupColumns.parse(["a,b,c", "b", "c,a"]).cells(codes), ([0, 1, 2], [1], [2, 0]), strict=True
    ):
        rows, sizes = np.unique(codes[:, columns], axis=0, return_counts=True)
        assert (cells == rows).all()
        assert (counts == sizes).all()
        assert (cells[at] == codes[:, columns]).all()
