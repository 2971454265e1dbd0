"""Loaders of the paper's own data: on generated files of the published formats, against a reader that reads naively."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from label_dp.errors import InvalidFile
from tests.benchmarks.utility.paper import Source, census1940, criteo, load_census1940, load_criteo

pytestmark = pytest.mark.extended

CATEGORIES = ["SEX", "MARST", "CHBORN", "SCHOOL", "EMPSTAT", "OCC", "IND"]
CRITEO = [
    *("Sale", "SalesAmountInEuro", "Time_delay_for_conversion", "click_timestamp", "nb_clicks_1week", "product_price"),
    *("product_age_group", "device_type", "audience_id", "product_gender", "product_brand"),
    *(f"product_category_{level}" for level in (1, 2, 3, 4, 5, 6, 7)),
    *("product_country", "product_id", "product_title", "partner_id", "user_id"),
]
# characters of each variable, in the order of a rectangular extract
WIDTHS = {
    "YEAR": 4,
    "SERIAL": 8,
    "SEX": 1,
    "AGE": 3,
    "MARST": 1,
    "CHBORN": 2,
    "SCHOOL": 1,
    "EMPSTAT": 1,
    "OCC": 4,
    "IND": 4,
    "WKSWORK1": 2,
}


def criteo_rows(n: int, seed: int = 0) -> list[list[str]]:
    """Clicks, a third of them with a sale; the amount follows price and brand, so that there is something to learn."""
    rng = np.random.default_rng(seed)

    def hashed(name: str, value: int) -> str:
        return "-1" if value == 0 else f"{name.upper()}{value:026X}"[-32:]

    rows = []
    for _ in range(n):
        sale, price, brand = rng.random() < 0.33, rng.gamma(2.0, 30.0), int(rng.geometric(0.2))
        amount = (0.8 * price + 25.0 * min(brand, 8)) * rng.uniform(0.9, 1.1)
        row = {
            "Sale": str(int(sale)),
            "SalesAmountInEuro": f"{amount:.3f}" if sale else "-1.0",
            "Time_delay_for_conversion": str(rng.integers(0, 10**6)) if sale else "-1",
            "click_timestamp": str(1596439471 + len(rows)),
            "nb_clicks_1week": str(rng.integers(0, 500)) if rng.random() < 0.9 else "-1",
            "product_price": f"{price:.2f}",
        }
        for name in CRITEO[len(row) :]:
            row[name] = hashed(name, brand if name == "product_brand" else int(rng.integers(0, 4)))
        row["user_id"] = hashed("user_id", len(rows) + 1)
        row["product_title"] = '"quoted' if rng.random() < 0.01 else row["product_title"]
        rows.append([row[name] for name in CRITEO])
    return rows


def criteo_file(path: Path, rows: list[list[str]]) -> Path:
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def naive_criteo(rows: list[list[str]]) -> tuple[list[int], list[dict[str, Any]]]:
    labels, features = [], []
    for cells in rows:
        row = dict(zip(CRITEO, cells, strict=True))
        if row["Sale"] == "1" and float(row["SalesAmountInEuro"]) != -1.0:
            labels.append(min(max(math.floor(float(row["SalesAmountInEuro"])), 0), 400))
            numbers = ("Time_delay_for_conversion", "nb_clicks_1week", "product_price")
            shown: dict[str, Any] = {n: None if float(row[n]) == -1 else np.float32(row[n]) for n in numbers}
            features.append(shown | {n: None if row[n] == "-1" else row[n] for n in CRITEO[6:]})
    return labels, features


def census_rows(n: int, seed: int = 0) -> list[dict[str, int | None]]:
    rng = np.random.default_rng(seed)
    rows: list[dict[str, int | None]] = []
    for serial in range(n):
        working = rng.random() < 0.45
        rows.append(
            {
                "YEAR": 1940,
                "SERIAL": serial,
                "SEX": int(rng.integers(1, 3)),
                "AGE": 999 if rng.random() < 0.02 else int(rng.integers(14, 100)),
                "MARST": int(rng.integers(1, 7)),
                "CHBORN": int(rng.integers(0, 15)),
                "SCHOOL": int(rng.integers(1, 3)),
                "EMPSTAT": int(rng.integers(0, 4)),
                "OCC": int(rng.integers(0, 999)),
                "IND": int(rng.integers(0, 999)),
                "WKSWORK1": int(rng.integers(1, 53)) if working else (0 if rng.random() < 0.9 else None),
            }
        )
    return rows


def as_csv(rows: list[dict[str, int | None]]) -> bytes:
    sink = io.StringIO()
    writer = csv.DictWriter(sink, ["OCC", *(name for name in WIDTHS if name != "OCC")], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return sink.getvalue().encode()


def as_fixed_width(rows: list[dict[str, int | None]], newline: bytes = b"\n", zeros: bool = True) -> bytes:
    def cell(value: int | None, width: int) -> str:
        return " " * width if value is None else str(value).rjust(width, "0" if zeros else " ")

    return b"".join(
        "".join(cell(row[name], width) for name, width in WIDTHS.items()).encode() + newline for row in rows
    )


def codebook(leave_out: str = "") -> bytes:
    """A DDI codebook as IPUMS writes it, with what else is in one."""
    variables, at = [], 1
    for name, width in WIDTHS.items():
        if name != leave_out:
            variables.append(
                f'<var ID="{name}" name="{name}" dcml="0" files="F1" intrvl="discrete">'
                f'<location StartPos="{at}" EndPos="{at + width - 1}" width="{width}"/><labl>{name.title()}</labl>'
                f"<catgry><catValu>1</catValu><labl>one</labl></catgry></var>"
            )
        at += width
    return (
        '<?xml version="1.0" encoding="UTF-8"?><codeBook xmlns="ddi:codebook:2_5" version="2.5"><stdyDscr/>'
        f'<fileDscr ID="F1"/><dataDscr>{"".join(variables)}</dataDscr></codeBook>'
    ).encode()


def naive_census(rows: list[dict[str, int | None]]) -> tuple[list[int], list[dict[str, Any]]]:
    kept = [row for row in rows if (row["WKSWORK1"] or 0) >= 1]
    labels = [row["WKSWORK1"] for row in kept]
    ages = [None if row["AGE"] == 999 else np.float32(row["AGE"]) / np.float32(30) for row in kept]
    features = [{"AGE": age} | {n: row[n] for n in CATEGORIES} for age, row in zip(ages, kept, strict=True)]
    return labels, features  # type: ignore[return-value]  # no kept label is None


def same(source: Source, expected: tuple[list[int], list[dict[str, Any]]]) -> bool:
    return source.labels.tolist() == expected[0] and source.features.to_pylist() == expected[1]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few hundred rows in many blocks."""
    monkeypatch.setattr(criteo, "BLOCK", 20_000)
    monkeypatch.setattr(census1940, "BLOCK", 1000)


def test_criteo_as_a_naive_reader_reads_it(tmp_path: Path, small_blocks: None) -> None:
    rows = criteo_rows(700)
    rows[5][:3] = ["1", "-1", "17"]  # a sale of unknown amount has no label
    rows[7][:2] = ["1", "62458.773"]
    source = load_criteo(criteo_file(tmp_path / "CriteoSearchData", rows))
    assert same(source, naive_criteo(rows))
    assert max(source.labels) == 400
    assert (source.label, source.domain, source.loss) == ("SalesAmountInEuro", "0:400", "squared")
    assert source.network == {"epochs": 50, "batch_size": 8192}
    assert list(source.categorical) == CRITEO[6:]
    compressed = tmp_path / "CriteoSearchData.gz"
    compressed.write_bytes(gzip.compress((tmp_path / "CriteoSearchData").read_bytes()))
    first = load_criteo(compressed, limit=31)
    labels, features = naive_criteo(rows)
    assert same(first, (labels[:31], features[:31]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows[400].pop(), "row 401 has 22 columns instead of 23"),
        (lambda rows: rows[650].append("SECRET"), "row 651 has 24 columns instead of 23"),
        (lambda rows: rows[650].__setitem__(1, "SECRET"), "SalesAmountInEuro of row 651"),
        (lambda rows: rows[3].__setitem__(4, "SECRET"), "nb_clicks_1week of row 4"),
        (lambda rows: rows[0].__setitem__(0, "Sale"), "Sale of row 1"),
        (lambda rows: rows[9].__setitem__(slice(0, 2), ["1", "nan"]), "SalesAmountInEuro .* not a finite number"),
        (lambda rows: rows.clear(), "is empty"),
        (lambda rows: [row.__setitem__(0, "0") for row in rows], "no row with a sale"),
    ],
)
def test_criteo_errors_name_the_row_and_no_value(
    tmp_path: Path, small_blocks: None, change: Callable[[list[list[str]]], Any], said: str
) -> None:
    rows = criteo_rows(700)
    change(rows)
    with pytest.raises(InvalidFile, match=said) as refusal:
        load_criteo(criteo_file(tmp_path / "data.tsv", rows))
    assert "SECRET" not in str(refusal.value)
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


def test_census_as_a_naive_reader_reads_it_in_each_format(tmp_path: Path, small_blocks: None) -> None:
    rows = census_rows(900)
    expected = naive_census(rows)
    (tmp_path / "usa_00001.xml").write_bytes(codebook())
    files = {
        "usa_00001.csv": as_csv(rows),
        "usa_00001.csv.gz": gzip.compress(as_csv(rows).replace(b"\n", b"\r\n")),
        "usa_00001.dat": as_fixed_width(rows),
        "usa_00001.dat.gz": gzip.compress(as_fixed_width(rows, b"\r\n", zeros=False)),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        source = load_census1940(tmp_path / name)
        assert same(source, expected), name
        limited = load_census1940(tmp_path / name, limit=50)
        assert same(limited, (expected[0][:50], expected[1][:50])), name
    assert (source.label, source.domain, source.loss) == ("WKSWORK1", "1:52", "squared")
    assert source.network == {"epochs": 200, "batch_size": 8192}
    assert source.categorical == tuple(CATEGORIES)
    (tmp_path / "elsewhere.dat").write_bytes(as_fixed_width(rows).rstrip(b"\n"))
    assert same(load_census1940(tmp_path / "elsewhere.dat", layout=tmp_path / "usa_00001.xml"), expected)


@pytest.mark.parametrize(
    ("name", "data", "book", "said"),
    [
        ("a.csv", as_csv(census_rows(90)).replace(b"OCC", b"OCC1950", 1), b"", "one variable OCC; the extract needs"),
        ("a.csv", as_csv(census_rows(90)) + b"1,2,3\n", b"", "row 92 has 3 columns, its header 11"),
        ("a.csv", as_csv(census_rows(90)).replace(b",1940,", b",1940,") + b"SECRET," * 10 + b"1\n", b"", "row 92"),
        ("a.dat", as_fixed_width(census_rows(90)), codebook("AGE"), "variable AGE; the extract needs"),
        ("a.dat", as_fixed_width(census_rows(90)), b"<var>", "not XML"),
        ("a.dat", as_fixed_width(census_rows(90)), None, r"cannot be read .*DDI"),
        ("a.dat", as_fixed_width(census_rows(90)) + b"H1940\n" + as_fixed_width(census_rows(9)), codebook(), "row 91"),
        ("a.dat", as_fixed_width(census_rows(90)).replace(b"\n", b"9\n", 40), codebook(), "row 41"),
        ("a.dat", b"1940\n" * 30, codebook(), "row 1 has 4 characters"),
        ("a.dat", as_fixed_width(census_rows(90))[:-1] + b"9", codebook(), "row 90"),
        ("a.dat", b"", codebook(), "is empty"),
        ("a.dat", as_fixed_width(census_rows(9)).replace(b"1940", b"1940\n", 1), codebook(), "row"),
    ],
)
def test_census_errors_name_row_or_variable(
    tmp_path: Path, small_blocks: None, name: str, data: bytes, book: bytes | None, said: str
) -> None:
    (tmp_path / name).write_bytes(data)
    if book is not None:
        (tmp_path / "a.xml").write_bytes(book)
    with pytest.raises(InvalidFile, match=said) as refusal:
        load_census1940(tmp_path / name)
    assert "SECRET" not in str(refusal.value)


def test_census_digits_are_checked(tmp_path: Path, small_blocks: None) -> None:
    good = census_rows(200)
    (tmp_path / "a.xml").write_bytes(codebook())
    for wrong in (b"X0", b"5 "):
        lines = as_fixed_width(good).split(b"\n")
        lines[150] = lines[150][:-2] + wrong
        (tmp_path / "a.dat").write_bytes(b"\n".join(lines))
        with pytest.raises(InvalidFile, match="WKSWORK1 of row 151"):
            load_census1940(tmp_path / "a.dat")


def test_a_file_that_is_not_there_or_not_what_its_name_says(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(b"not compressed")
    for attempt in (
        lambda: load_criteo(tmp_path / "nothing.tsv"),
        lambda: load_census1940(tmp_path / "nothing.csv"),
        lambda: load_census1940(tmp_path / "a.csv.gz"),
    ):
        with pytest.raises(InvalidFile, match="cannot be read"):
            attempt()


@pytest.mark.torch
def test_the_paper_end_to_end_on_a_generated_criteo_file(tmp_path: Path) -> None:
    """Load, privatize at ε = 1, train the network for two epochs: better than the mean on labels it never saw."""
    if importlib.util.find_spec("torch") is None:
        reason = "PyTorch is not installed; `make test-torch` installs it"
        if os.environ.get("REQUIRE_TORCH"):
            pytest.fail(reason)
        pytest.skip(reason)
    from features_party.training.correction import correct
    from features_party.training.learners.mlp_fit import NetworkSettings
    from label_dp.domain import Domain
    from label_dp.privacy import Epsilon
    from labels_party.mechanisms.catalogue import MECHANISMS
    from tests.support.training import fit

    source = load_criteo(criteo_file(tmp_path / "CriteoSearchData", criteo_rows(18_000)))
    test = np.random.default_rng(0).random(len(source.labels)) < 0.2
    train_labels, test_labels = source.labels[~test], source.labels[test]
    domain = Domain.parse(source.domain)
    prior = np.bincount(train_labels, minlength=domain.k) / len(train_labels)
    mechanism = MECHANISMS["rr-on-bins"]
    channel = mechanism.design(domain, prior, Epsilon.parse("1"), source.loss, {})
    outputs = mechanism.sample(channel, train_labels)
    correction = correct(channel, "auto", prior)
    model = fit(
        source.features.filter(pa.array(~test)),
        correction.corrected[outputs],
        noise_variance=correction.noise_variance,
        domain=domain,
        categorical=source.categorical,
        model="mlp",
        loss=source.loss,
        settings=NetworkSettings(epochs=2, batch_size=64),
    )
    predictions = model.predict(source.features.filter(pa.array(test)))
    constant = np.mean((train_labels.mean() - test_labels) ** 2)
    assert np.mean((predictions - test_labels) ** 2) < 0.9 * constant
