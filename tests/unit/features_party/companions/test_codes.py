"""Public codes: what they are made of, which columns are kept, and the model of exact and of noisy sums."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from features_party.companions.codes import LEVELS, MOST, CodeTable, choose_codes, codes_of, learn_codes
from features_party.companions.sum_models import CellTotals, fit_sums, model_of
from features_party.tables.feature_tables import FeatureTable
from label_dp.domain import Domain
from label_dp.errors import InvalidFile, InvalidInput, InvalidTable
from label_dp.privacy import Epsilon

N = 20_000
RNG = np.random.default_rng(3)
NUMBER = RNG.normal(size=N)
CATEGORY = RNG.choice([f"v{i}" for i in range(40)], N, p=np.arange(40, 0, -1) / 820)
COLUMNS = {
    "number": pa.array(NUMBER, mask=RNG.random(N) < 0.1),
    "category": pa.array(CATEGORY),
    "copy": pa.array(CATEGORY),
    "rare": pa.array(RNG.random(N) < 0.001),
}


def table_of(columns: dict[str, pa.Array] = COLUMNS) -> CodeTable:
    return learn_codes(FeatureTable(pa.array([str(i) for i in range(N)]), pa.table(columns), "id"))


def kept(table: CodeTable, epsilon: str, *crossed: tuple[str, str]) -> list[str]:
    return choose_codes(table, Epsilon.parse(epsilon), crossed).codes.by


def totals_of(table: CodeTable, labels: np.ndarray, scale: float) -> list[CellTotals]:
    totals = []
    for grouping in table.codes.groupings:
        cells = table.cells(grouping)
        seen = np.flatnonzero(np.bincount(cells))
        noise = RNG.laplace(0.0, scale, len(seen)) if scale else 0.0
        totals.append(CellTotals(grouping, seen, np.bincount(cells, labels)[seen] + noise, max(2 * scale**2, 1e-6)))
    return totals


def test_a_code_is_a_bin_or_a_frequent_value() -> None:
    table = table_of()
    by_name = {column.name: column for column in table.codes.columns}
    assert set(by_name["category"].texts) == {value for value, _ in Counter(CATEGORY.tolist()).most_common(LEVELS)}
    assert len(by_name["number"].texts) == LEVELS
    assert by_name["number"].texts[0].startswith("below ")
    texts = table.table
    missing = texts["number"].null_count
    assert missing == COLUMNS["number"].null_count
    assert texts["category"].null_count == sum(value not in by_name["category"].texts for value in CATEGORY.tolist())
    counts = np.bincount(table.places[0], minlength=LEVELS + 1)[1:]
    assert counts.min() > 0.9 * counts.mean()


def test_columns_that_say_what_others_say_come_last() -> None:
    assert {"number", "category"} <= set(kept(table_of(), "0.2"))
    assert "copy" not in kept(table_of(), "0.2")
    many = {f"x{i}": pa.array(RNG.normal(size=N)) for i in range(12)}
    assert len(kept(table_of(many), "10")) == MOST
    assert len(kept(table_of(many), "0.02")) < MOST  # fewer share a smaller ε


def test_pairs_are_kept_in_any_case() -> None:
    assert kept(table_of(), "0.1", ("copy", "rare"))[0] == "copy,rare"
    for pair in (("copy", "copy"), ("copy", "none")):
        with pytest.raises(InvalidInput):
            kept(table_of(), "0.1", pair)


def test_codes_come_back_from_their_file(tmp_path: Path) -> None:
    table, path = choose_codes(table_of(), Epsilon.parse("1"), [("number", "category")]), tmp_path / "codes.parquet"
    table.write(path, "click")
    back = CodeTable.read(path, "click")
    assert back.codes == table.codes == codes_of(path)
    for one, other in zip(back.places, table.places, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(InvalidInput, match="Parquet"):
        table.write(tmp_path / "codes.csv", "click")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidFile):
        codes_of(path)


def test_a_comma_in_a_name_is_refused() -> None:
    with pytest.raises(InvalidTable, match="comma"):
        table_of({"a,b": COLUMNS["number"]})


def test_exact_sums_give_means_of_cells() -> None:
    table = choose_codes(table_of({"category": COLUMNS["category"]}), Epsilon.parse("1"))
    labels = 10.0 + 3.0 * (table.places[0] % 3) + RNG.normal(size=N)
    fit = fit_sums(table, totals_of(table, labels, 0.0), N, 30.0)
    rows = np.bincount(table.places[0])
    assert fit.mean + fit.effects[0] == pytest.approx(np.bincount(table.places[0], labels) / rows, abs=0.05)
    assert fit.gain == pytest.approx(np.var(3.0 * (table.places[0] % 3)), rel=0.1)


def test_noise_alone_predicts_the_constant() -> None:
    table = choose_codes(table_of(), Epsilon.parse("0.1"))
    labels, width, worst = RNG.uniform(0.0, 30.0, N), 30.0, []
    for _ in range(5):
        scale = width * len(table.codes.groupings) / 0.1
        model, estimate = model_of(table, totals_of(table, labels, scale), N, Domain.parse("0:30"))
        worst.append(float(np.mean((model.predict(pa.table(COLUMNS)) - labels) ** 2) / np.var(labels)))
        assert estimate.mse_below_constant.low <= 0.0
    assert np.mean(worst) < 1.01


def test_a_product_needs_its_pair() -> None:
    """Two signs whose product alone tells of the label: sums by either say nothing, sums by both tell all."""
    signs = {"a": pa.array(RNG.choice(["−", "+"], N)), "b": pa.array(RNG.choice(["−", "+"], N))}
    product = np.where(signs["a"].to_numpy(False) == signs["b"].to_numpy(False), 1.0, -1.0)
    labels, gains = 15.0 + 5.0 * product, {}
    for crossed in ((), (("a", "b"),)):
        table = choose_codes(table_of(signs), Epsilon.parse("0.5"), crossed)
        scale = 30.0 * len(table.codes.groupings) / 0.5
        model, _ = model_of(table, totals_of(table, labels, scale), N, Domain.parse("0:30"))
        gains[crossed] = 1.0 - float(np.mean((model.predict(pa.table(signs)) - labels) ** 2) / np.var(labels))
    assert gains[()] < 0.05
    assert gains[("a", "b"),] > 0.95
