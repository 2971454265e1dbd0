"""One bad label among good ones: named by row and rule, never by value; neighbouring labels look the same.

`offending` texts are searched for in replies and in captured logs (invariants 1 and 8); they are such that the random
hexadecimal ids in both cannot hold them.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from tests.support.desk import CSV, PARQUET, Desk, parquet
from tests.support.labels import LabelsParty

NUMBER = "must be a number"
FINITE = "must be a finite number"
EMPTY = "has no label: leave the row out"
OUTSIDE = "outside the label domain"

JSON_LABELS = [
    ("NaN", FINITE),
    ("Infinity", FINITE),
    ("-Infinity", FINITE),
    ("1e400", FINITE),
    ("1" + "0" * 400, FINITE),
    ("-1" + "0" * 400, FINITE),
    ('"7319462851.625"', NUMBER),
    ('"seven-319462851"', NUMBER),
    ("true", NUMBER),
    ("false", NUMBER),
    ("null", EMPTY),
    ("[7319462851]", NUMBER),
    ('{"deep":7319462851}', NUMBER),
    ("[[[[7319462851]]]]", NUMBER),
    ("1.5e308", OUTSIDE),
    ("-1.5e308", OUTSIDE),
    ("-5e-324", OUTSIDE),
    ("7319462851.625", OUTSIDE),
    ("-7319462851", OUTSIDE),
    ("100.00000000000001", OUTSIDE),
]


@pytest.mark.parametrize(("text", "rule"), JSON_LABELS)
def test_a_bad_json_label_is_named_by_row_and_rule(text: str, rule: str, desk: Desk) -> None:
    before = desk.state()
    records = ",".join(f'{{"example_id":"c{i}","label":{text if i == 3 else i}}}' for i in range(6))
    columns = f'{{"example_id":["c0","c1","c2","c3"],"label":[0,1,2,{text}]}}'
    for body in (f'{{"records":[{records}]}}', columns):
        problem = desk.refused(
            desk.labels(body.encode()), "invalid-rows", "7319462851", "1.5e308", "5e-324", "100.0000", "0" * 30
        )
        assert problem["rejected"] == 1
        (row,) = problem["rows"]
        assert (row["row"], row["field"]) == (4, "label")
        assert rule in row["rule"]
        assert "Row 4" in problem["detail"]
    assert desk.state() == before


CSV_LABELS = [
    ("nan", FINITE),
    ("inf", FINITE),
    ("-inf", FINITE),
    ("Infinity", FINITE),
    ("1e400", FINITE),
    ("seven319462851", NUMBER),
    ("7319462851;5", NUMBER),
    ("0x7319462851", NUMBER),
    ("7319_462851", NUMBER),
    ("true", NUMBER),
    ("", EMPTY),
    ('""', EMPTY),
    ("NA", NUMBER),
    ("null", NUMBER),
    ("7319462851.625", OUTSIDE),
    ("-0.5", OUTSIDE),
    ("1.5e308", OUTSIDE),
]


@pytest.mark.parametrize(("text", "rule"), CSV_LABELS)
def test_a_bad_csv_label_is_named_by_row_and_rule(text: str, rule: str, desk: Desk) -> None:
    before = desk.state()
    lines = "\n".join(f"c{i},{text if i == 2 else i}" for i in range(5))
    problem = desk.refused(
        desk.labels(f"example_id,label\n{lines}\n".encode(), CSV),
        "invalid-rows",
        "7319462851",
        "7319_462851",
        "1.5e308",
    )
    assert [(r["row"], r["field"]) for r in problem["rows"]] == [(3, "label")]
    assert rule in problem["rows"][0]["rule"]
    assert desk.state() == before


PARQUET_LABELS: list[tuple[Any, str, str]] = [
    (pa.array([1.0, math.nan]), "invalid-rows", FINITE),
    (pa.array([1.0, math.inf]), "invalid-rows", FINITE),
    (pa.array([1.0, -math.inf]), "invalid-rows", FINITE),
    (pa.array([1.0, None]), "invalid-rows", EMPTY),
    (pa.array([1.0, 1.5e308]), "invalid-rows", OUTSIDE),
    (pa.array([1, 7319462851]), "invalid-rows", OUTSIDE),
    (pa.array([1, -1319462851], pa.int32()), "invalid-rows", OUTSIDE),
    (pa.array([1, 2**64 - 1], pa.uint64()), "invalid-rows", OUTSIDE),
    (pa.array(["1", "seven7319462851"]), "invalid-rows", NUMBER),
    (pa.array(["1", None]), "invalid-rows", EMPTY),
    (pa.array([1, 7319462851]).cast(pa.decimal128(30, 2)), "invalid-rows", OUTSIDE),
    (pa.array(["1", "7319462851"]).dictionary_encode(), "invalid-rows", OUTSIDE),
    (pa.array([1.0, 60000.0], pa.float16()), "invalid-rows", OUTSIDE),
    (pa.array([True, False]), "invalid-table", "numbers"),
    (pa.array([[1], [7319462851]]), "invalid-table", "numbers"),
    (pa.array([{"a": 1}, {"a": 7319462851}]), "invalid-table", "numbers"),
    (pa.array([b"1", b"7319462851"]), "invalid-table", "numbers"),
    (pa.array([1, 7319462851], pa.timestamp("s")), "invalid-table", "numbers"),
]


@pytest.mark.parametrize(("column", "code", "rule"), PARQUET_LABELS)
def test_a_bad_parquet_label_is_named_by_row_and_rule(column: Any, code: str, rule: str, desk: Desk) -> None:
    before = desk.state()
    problem = desk.refused(
        desk.labels(parquet(example_id=["a", "b"], label=column), PARQUET),
        code,
        "319462851",
        "60000.",
        "18446744073709551615",
    )
    assert rule in problem["detail"]
    if code == "invalid-rows":
        assert problem["rows"][0]["row"] == 2
    assert desk.state() == before


@pytest.mark.parametrize("label", [-0.0, 0.0, 5e-324, 2.2e-308, 99.99999999999999, 100.0])
def test_odd_but_good_labels_are_taken(label: float, desk: Desk) -> None:
    assert desk.send(["a"], [label]).json() == {"batch": desk.batch, "accepted": 1}
    assert desk.labels(parquet(example_id=["b"], label=[label]), PARQUET).status_code == 200


def test_only_twenty_bad_rows_are_listed_but_all_are_counted(desk: Desk) -> None:
    problem = desk.refused(desk.send([f"c{i}" for i in range(500)], [7319462851] * 500), "invalid-rows", "7319462851")
    assert (problem["rejected"], len(problem["rows"])) == (500, 20)


def _walk(home: Path, labels: list[float], caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """Everything a caller sees up to publication, with ids taken out, and every log line."""
    caplog.clear()
    seen: list[tuple[int, str]] = []
    with LabelsParty(home, worker=False) as party, caplog.at_level(logging.DEBUG):
        client = party.client("owner")

        def note(answer: httpx.Response) -> dict[str, Any]:
            text = answer.text
            for word, stands in names.items():
                text = text.replace(word, stands)
            seen.append((answer.status_code, text))
            return dict(answer.json()) if answer.text.startswith("{") else {}

        names = {str(party.services.apikeys.list()[0]["id"]): "KEY"}
        names[
            note(
                client.post(
                    "/v1/populations", json={"name": "s", "label": "r", "domain": "0:10", "lifetime_epsilon": "1"}
                )
            )["id"]
        ] = "POP"
        seen.clear()
        batch = client.post("/v1/populations/s/batches", json={"presence": "public"}).json()["id"]
        names[batch] = "BATCH"
        ids = [f"c{i}" for i in range(len(labels))]
        half = len(labels) // 2
        note(client.post(f"/v1/batches/{batch}/labels", json={"example_id": ids[:half], "label": labels[:half]}))
        note(client.post(f"/v1/batches/{batch}/labels", json={"example_id": ids[:1], "label": labels[:1]}))
        note(
            client.post(
                f"/v1/batches/{batch}/labels", json={"example_id": [*ids[half:], ""], "label": [*labels[half:], 1]}
            )
        )
        note(client.post(f"/v1/batches/{batch}/labels", json={"example_id": ids[half:], "label": labels[half:]}))
        note(client.post(f"/v1/batches/{batch}/seal"))
        note(client.get("/v1/populations/s/plan", params={"epsilon": "1", "batch": batch}))
        asked = client.post(f"/v1/batches/{batch}/releases", json={"epsilon": "1"})
        names[asked.json()["id"]] = "RELEASE"
        note(asked)
        steps: list[tuple[str, float]] = []
        party.services.pipeline.run(asked.json()["id"], lambda what, share: steps.append((what, share)))
        seen.append((len(steps), repr(steps)))
        events = client.get("/v1/audit/events").json()
        seen.append((len(events), repr([(e["kind"], e["epsilon"], sorted(e["details"])) for e in events])))
        root = party.home / "labels"
        seen.append((0, repr(sorted((p.suffix, p.stat().st_size) for p in root.rglob("*") if p.is_file()))))
        text = re.sub(r"\d+ms key=\w+", "", caplog.text)  # of routes whose effort does not depend on labels
        for word, stands in names.items():
            text = text.replace(word, stands)
        seen.append((0, text))
        for name in ("created", "sealed", "closed"):
            seen = [(s, "".join(part for part in _without(t, name))) for s, t in seen]
    return seen


def _without(text: str, member: str) -> Iterator[str]:
    """`text` without the value of a time member, which may tick between two walks."""
    yield re.sub(rf'"{member}":"[^"]*"', f'"{member}":"T"', text)


def test_neighbouring_labels_look_the_same_up_to_publication(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(5)
    base = [float(v) for v in rng.integers(0, 11, 40)]
    walks = []
    for i, change in enumerate((0.0, 10.0, 3.7, 99999.0, -5.0, -0.0)):  # the last ones are clipped, which must not show
        walks.append(_walk(tmp_path / f"home-{i}", [*base[:7], change, *base[8:]], caplog))
    for other in walks[1:]:
        assert other == walks[0]
