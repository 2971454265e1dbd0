"""A label that prints as a value of the domain is that value, whatever door it comes in by and whatever holds it."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from features_party.models.evaluation import true_labels
from label_dp.domain import Domain
from label_dp.losses import load_matrix_loss
from labels_party.message.priors import read_prior
from labels_party.spark.executor.arriving import ArrivalRules
from tests.integration.test_named_labels import stored
from tests.support.desk import Desk
from tests.support.labels_cli import Run, arguments, read
from tests.support.upload_formats import COLUMN_FORMATS, MEDIA, TEXT_FORMATS, table_body, text_body, token

PRICES = ["0", "4.99", "9.99", "19.99"]
INDEX = [3, 1, 0, 2, 1, 3]
IDS = [f"c{i}" for i in range(len(INDEX))]


def column(kind: str, texts: list[str]) -> pa.Array:
    if kind == "decimal":
        return pa.array([Decimal(text) for text in texts], pa.decimal128(20, 6))
    if kind == "text":
        return pa.array(texts)
    if kind == "dictionary":
        return column("float32", texts).dictionary_encode()
    return pa.array(np.array(texts, np.float64).astype(kind))


KINDS = ["float16", "float32", "float64", "decimal", "text", "dictionary"]


@pytest.fixture
def prices(desk: Desk) -> str:
    return desk.open(desk.make("prices", domain=[float(p) for p in PRICES], out_of_domain="refuse"))


def sealed(desk: Desk, batch: str) -> list[int]:
    assert desk.client.post(f"/v1/batches/{batch}/seal").status_code == 200
    found = stored(desk.party, batch)
    return [found[i] for i in IDS]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", sorted(COLUMN_FORMATS))
def test_every_type_of_column(form: str, kind: str, desk: Desk, prices: str) -> None:
    labels = column(kind, [PRICES[at] for at in INDEX])
    answer = desk.labels(table_body(form, pa.table({"example_id": IDS, "label": labels})), MEDIA[form], prices)
    assert answer.status_code == 200, answer.text
    assert sealed(desk, prices) == INDEX


@pytest.mark.parametrize("form", sorted(TEXT_FORMATS))
def test_every_text_format(form: str, desk: Desk, prices: str) -> None:
    labels = [PRICES[at] if form == "csv" else json.dumps(float(PRICES[at])) for at in INDEX]
    answer = desk.labels(text_body(form, [token(form, i) for i in IDS], labels), MEDIA[form], prices)
    assert answer.status_code == 200, answer.text
    assert sealed(desk, prices) == INDEX


@pytest.mark.parametrize("form", sorted(MEDIA))
def test_sums_in_doubles_are_the_same_by_every_format(form: str, desk: Desk) -> None:
    batch = desk.open(desk.make("tenths", domain="0:1:0.1"))
    sums = [sum([0.1] * i) for i in (0, 3, 7, 8, 9, 10)]
    assert sums[3] < 0.1 * 8  # eight times 0.1 added up is less than 0.8
    if form in COLUMN_FORMATS:
        body = table_body(form, pa.table({"example_id": IDS, "label": sums}))
    else:
        body = text_body(form, [token(form, i) for i in IDS], [repr(value) for value in sums])
    assert desk.labels(body, MEDIA[form], batch).status_code == 200
    assert sealed(desk, batch) == [0, 3, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("name", "domain", "labels"),
    [
        ("plans", None, column("float32", PRICES)),
        ("tenths", "0:1:0.1", pa.array((np.arange(11) / 10).astype(np.float32))),
        ("sums", "0:1:0.1", pa.array([sum([0.1] * i) for i in range(11)])),
        ("cents", "0:1000:1", pa.array(np.arange(1001) / 100 * 100)),
        ("exact", "0:1.15:0.05", column("decimal", [str(Decimal(5 * i) / 100) for i in range(24)])),
        ("half", "0:1.5:0.1", column("float16", [str(Decimal(i) / 10) for i in range(16)])),
        ("narrow", "0.1:0.7:0.1", column("float32", [str(Decimal(i) / 10) for i in range(1, 8)])),
    ],
)
def test_files(name: str, domain: str | None, labels: pa.Array, run: Run, home: Path, tmp_path: Path) -> None:
    """At ε = 40 randomized response keeps every label but one in 10¹⁵."""
    n, prices = len(labels), tmp_path / "prices.csv"
    prices.write_text("label\n" + "\n".join(PRICES) + "\n", encoding="utf-8")
    ids = [f"{name}{i:04d}" for i in range(n)]
    for kind in ("parquet", "csv"):
        file = tmp_path / f"{name}.{kind}"
        table = pa.table({"example_id": [f"{kind}-{i}" for i in ids], "label": labels})
        if kind == "parquet":
            pq.write_table(table, file)
        elif pa.types.is_float16(labels.type):
            continue  # Arrow writes it with more digits than it has
        else:
            pyarrow.csv.write_csv(table, file)
        asked = {"domain": domain or str(prices), "epsilon": "40", "budget": "80", "mechanism": "rr"}
        out = str(tmp_path / f"{name}-{kind}.out.parquet")
        done = run(*arguments(file, out, **asked, out_of_domain="refuse"))
        assert done.code == 0, done.err
        rows = read(Path(out), home).to_pylist()
        assert {row["example_id"]: row["bin"] for row in rows} == {f"{kind}-{i}": at for at, i in enumerate(ids)}


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_of_spark_read_by_the_same_rule(kind: str) -> None:
    rules = ArrivalRules("example_id", "label", Domain.from_values(PRICES), "refuse")
    rows = pa.record_batch({"example_id": IDS, "label": column(kind, [PRICES[at] for at in INDEX])})
    assert rules.read(rows)[1].tolist() == INDEX


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "dictionary"])
def test_files_of_domains_priors_and_losses(kind: str, run: Run, home: Path, tmp_path: Path) -> None:
    domain, prior, loss = (tmp_path / f"{name}.parquet" for name in ("domain", "prior", "loss"))
    values = column(kind, PRICES) if kind != "float16" else column(kind, ["0", "0.1", "0.7", "5.1"])
    pq.write_table(pa.table({"label": values}), domain)
    pq.write_table(pa.table({"label": values, "probability": [0.25] * 4}), prior)
    pq.write_table(pa.table({"label": values, **{str(v): [1.0, 2.0, 3.0, v] for v in (0.0, 8.0)}}), loss)
    exact = Domain.from_values(PRICES if kind != "float16" else ["0", "0.1", "0.7", "5.1"])
    assert read_prior(prior, exact).tolist() == [0.25] * 4
    if kind != "text":
        load_matrix_loss(loss).check(exact.values)
    file = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"example_id": IDS, "label": exact.values[np.array(INDEX)]}), file)
    asked: dict[str, Any] = {"domain": str(domain), "prior": str(prior), "out": str(tmp_path / "m.parquet")}
    done = run(*arguments(file, **asked))
    assert done.code == 0, done.err
    listed = tmp_path / "domain.csv"
    listed.write_text("label\n" + "\n".join(f"{value}" for value in exact.listed) + "\n", encoding="utf-8")
    same = asked | {"domain": str(listed), "out": str(tmp_path / "n.parquet")}
    assert run(*arguments(file, **same), "--additional-release").code == 0  # of the same population


def test_labels_that_numpy_counted_up_are_those_of_a_domain(tmp_path: Path) -> None:
    """`arange` says 0.30000000000000004."""
    steps, domain = np.arange(0, 1.05, 0.1), Domain.parse("0:1:0.1")
    assert not np.array_equal(steps, domain.values)
    prior, loss = tmp_path / "prior.csv", tmp_path / "loss.csv"
    pyarrow.csv.write_csv(pa.table({"label": steps, "probability": np.full(11, 1 / 11)}), prior)
    assert read_prior(prior, domain).tolist() == [1 / 11] * 11
    pyarrow.csv.write_csv(pa.table({"label": steps, "0": steps, "1": 1 - steps}), loss)
    found = load_matrix_loss(loss)
    found.check(domain.values)
    assert found.pointwise(np.array([1.0]), domain.values[3:4]).tolist() == [float(1 - steps[3])]


class Saved:
    """What `true_labels` asks of a model."""

    def __init__(self, domain: Domain) -> None:
        self.card = {"domain": domain.as_json()}
        self.model = type("Model", (), {"classes": domain, "schema": type("Schema", (), {"categories": ()})})


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "text"])
def test_true_labels_of_an_evaluation_are_values_of_the_domain(kind: str, tmp_path: Path) -> None:
    file, domain = tmp_path / "true.parquet", Domain.from_values(PRICES)
    pq.write_table(pa.table({"y": column(kind, [*PRICES, "7.5"])}), file)
    saved: Any = Saved(domain)
    assert true_labels(saved, file, "y")[1].tolist() == [0.0, 4.99, 9.99, 19.99, 7.5]


def test_views_of_text_are_read_row_by_row(desk: Desk) -> None:
    """Empty ones delete in an upsert, and bad ones are named."""
    batch = desk.open(desk.make("views", out_of_domain="refuse", missing_label="0"))

    def body(*labels: str | None) -> bytes:
        view = pa.array(labels, pa.string()).cast(pa.string_view())
        return table_body("arrow", pa.table({"example_id": IDS[: len(labels)], "label": view}))

    assert desk.labels(body("1", "2", "3", "4", "5", "6"), MEDIA["arrow"], batch).status_code == 200
    problem = desk.refused(desk.labels(body("1", "x"), MEDIA["arrow"], batch), "invalid-rows")
    assert problem["rows"][0]["rule"] == "must be a number"
    path, head = f"/v1/batches/{batch}/labels?mode=upsert", {"content-type": MEDIA["arrow"]}
    assert desk.client.post(path, content=body("7", "", None, "x"), headers=head).status_code == 422
    assert desk.client.post(path, content=body("7", "", None, "8"), headers=head).status_code == 200
    assert desk.client.post(f"/v1/batches/{batch}/seal").status_code == 200
    assert stored(desk.party, batch) == {"c0": 7, "c1": 0, "c2": 0, "c3": 8, "c4": 5, "c5": 6}


@pytest.mark.parametrize("names", [("NA", "EMEA", "null"), ("false", "true"), ("2024-07-01", "None")])
def test_names_of_a_prior_by_hand_are_texts(tmp_path: Path, names: tuple[str, ...]) -> None:
    prior, domain = tmp_path / "prior.csv", Domain.from_json({"names": list(names)})
    prior.write_text(
        "label,probability\n" + "".join(f"{name},{1 / len(names)!r}\n" for name in names), encoding="utf-8"
    )
    assert read_prior(prior, domain).tolist() == [1 / len(names)] * len(names)
