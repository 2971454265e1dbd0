"""Every format of an upload: the same rows arrive, the same rules name the same rows, also in long uploads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from labels_party.labels.batches import SEALED
from labels_party.labels.seal import SealedLabels
from tests.support.cases import cases
from tests.support.desk import Desk
from tests.support.labels import LabelsParty
from tests.support.upload_formats import ARROW, CSV, JSON, MEDIA, NDJSON, PARQUET, good_body, table_body

ROWS = 150_000  # more than a chunk, and more bytes than are read at once


def stored(party: LabelsParty, batch: str) -> dict[str, int]:
    """Ids of a sealed batch with the positions of their labels."""
    s = party.services
    (segment,) = s.database.read("test.segments", lambda c: s.batches.segments(c, batch, SEALED))
    chunks = list(SealedLabels(s.vault, segment.key).chunks())
    ids = [i for found, _ in chunks for i in found.to_pylist()]
    return dict(zip(ids, (int(p) for _, found in chunks for p in found), strict=True))


@pytest.mark.parametrize("form", sorted(MEDIA))
def test_a_byte_order_mark_belongs_to_its_id(form: str, desk: Desk) -> None:
    ids = ["\ufeffa", "\ufeffb"]
    assert desk.labels(good_body(form, ids, [1, 2]), MEDIA[form]).status_code == 200
    assert desk.client.post(f"/v1/batches/{desk.batch}/seal").status_code == 200
    assert stored(desk.party, desk.batch) == dict(zip(ids, [1, 2], strict=True))


@pytest.mark.parametrize("form", cases(sorted(MEDIA), lambda form: form in ("csv", "parquet")))
def test_every_row_of_a_long_upload_arrives(form: str, desk: Desk) -> None:
    ids = [f'c{i},"{{x}}\\' if form != "csv" and i % 1000 == 0 else f"c{i}" for i in range(ROWS)]
    labels = [i % 101 for i in range(ROWS)]
    body = good_body(form, ids, labels)

    def pieces() -> Iterator[bytes]:  # as a network would cut them, and never where a record ends
        for start in range(0, len(body), 70_001):
            yield body[start : start + 70_001]

    path = f"/v1/batches/{desk.batch}/labels"
    answer = desk.client.post(path, content=pieces(), headers={"content-type": MEDIA[form]})
    assert answer.json() == {"batch": desk.batch, "accepted": ROWS}, answer.text
    assert desk.client.post(f"/v1/batches/{desk.batch}/seal").status_code == 200
    assert stored(desk.party, desk.batch) == dict(zip(ids, labels, strict=True))


@pytest.mark.parametrize("form", sorted(MEDIA))
@pytest.mark.parametrize("bad_row", cases([3, 100_003], lambda row: row == 3))
def test_a_bad_row_is_named_wherever_it_is(form: str, bad_row: int, desk: Desk) -> None:
    ids = [f"c{i}" for i in range(bad_row + 10)]
    labels = [1.0] * len(ids)
    labels[bad_row] = 731946.0
    before = desk.state()
    problem = desk.refused(desk.labels(good_body(form, ids, labels), MEDIA[form]), "invalid-rows", "731946")
    (row,) = problem["rows"]
    assert (row["row"], row["field"], problem["rejected"]) == (bad_row + 1, "label", 1)
    lines = {"ndjson": bad_row + 1, "csv": bad_row + 2}
    assert row.get("line") == lines.get(form)
    assert desk.state() == before


@pytest.mark.parametrize("form", cases(sorted(MEDIA), lambda form: form == "csv"))
def test_an_id_twice_in_one_upload_is_found_however_far_apart(form: str, desk: Desk) -> None:
    ids = [f"c{i}" for i in range(100_000)] + ["c7"]
    before = desk.state()
    problem = desk.refused(desk.labels(good_body(form, ids, [1] * len(ids)), MEDIA[form]), "invalid-rows")
    assert [r["row"] for r in problem["rows"]] == [100_001]
    assert desk.state() == before


@pytest.mark.parametrize(
    ("body", "media", "line"),
    [
        (b'{"example_id":"a","label":1}\n\n\r\n{"example_id":"b","label":"x"}\n', NDJSON, 4),
        (b'example_id,label\n"a\nb",1\n\n"c""d",2\ne,x\n', CSV, 6),
        (b'\xef\xbb\xbfnote,label,example_id\r\n"x\r\ny",1,a\r\n,none,b\r\n', CSV, 4),
    ],
)
def test_lines_count_blank_ones_and_those_inside_quotes(body: bytes, media: str, line: int, desk: Desk) -> None:
    problem = desk.refused(desk.labels(body, media), "invalid-rows")
    assert [r["line"] for r in problem["rows"]] == [line]


NDJSON_ROWS = [
    ("{", "is not valid JSON"),
    ('{"example_id":"b","label":1}}', "is not valid JSON"),
    ("[1,2]", "exactly the members"),
    ("7", "exactly the members"),
    ('{"example_id":"b"}', "exactly the members"),
    ('{"example_id":"b","label":1,"unit":"u"}', "exactly the members"),
    ('{"example_id":"b","label":1,"label":2}', "occurs twice"),
    ('{"example_id":"b","label":1,"la\\u0062el":2}', "occurs twice"),
    ('{"example_id":"' + "b" * 70_000 + '","label":1}', "65536 bytes"),
    ('{"example_id":"' + "b" * 10_000 + '","label":1}', "512 bytes"),
    ('{"example_id":"b","label":' + "[" * 5_000 + "]" * 5_000 + "}", "is not valid JSON"),
    ('{"example_id":"b","label":NaN}', "finite"),
    ('{"example_id":1.0,"label":1}', "text or a whole number"),
]


@pytest.mark.extended
@pytest.mark.parametrize(("text", "rule"), NDJSON_ROWS)
def test_a_bad_line_is_a_bad_row(text: str, rule: str, desk: Desk) -> None:
    before = desk.state()
    body = f'{{"example_id":"a","label":1}}\n{text}\n{{"example_id":"c","label":1}}\n'
    problem = desk.refused(desk.labels(body.encode(), NDJSON), "invalid-rows", "b" * 40)
    assert [(r["row"], r["line"]) for r in problem["rows"]] == [(2, 2)]
    assert rule in problem["rows"][0]["rule"]
    assert desk.state() == before


def test_a_line_that_never_ends_is_one_bad_row(desk: Desk) -> None:
    body = b'{"example_id":"a","label":1}\n' + b"x" * 5_000_000 + b'\n{"example_id":"c","label":"?"}'
    problem = desk.refused(desk.labels(body, NDJSON), "invalid-rows")
    assert [(r["row"], r["line"]) for r in problem["rows"]] == [(2, 2), (3, 3)]


@pytest.mark.extended
@pytest.mark.parametrize("repeated", ['"label":1,"label":2', '"label":1 , "label" : 1', '"label":1,"la\\u0062el":1'])
def test_a_member_twice_is_refused_in_a_short_and_in_a_long_document(repeated: str, desk: Desk) -> None:
    before = desk.state()
    for rows in (3, 40_000):
        records = [f'{{"example_id":"c{i}:{i}","label":1}}' for i in range(rows)]
        records[rows - 2] = f'{{"example_id":"c","{repeated[1:]}}}'
        problem = desk.refused(desk.labels(f'{{"records":[{",".join(records)}]}}'.encode()), "invalid-rows")
        assert [(r["row"], r["rule"]) for r in problem["rows"]] == [(rows - 1, "a member occurs twice")]
    desk.refused(desk.labels(b'{"example_id":["a"],"label":[1],"label":[2]}'), "invalid-file")
    desk.refused(desk.labels(b'{"records":[{"example_id":"a","label":1}],"records":[]}'), "invalid-file")
    assert desk.state() == before


BROKEN_TAILS = [b"", b"]", b"]]}", b"]}}", b"]}x", b",]}", b'],"more":1}', b"} ]}", b',{"example_id":"x","label":']


@pytest.mark.parametrize("tail", cases(BROKEN_TAILS, lambda tail: len(tail) < 2))
def test_a_long_document_that_ends_wrongly_is_refused(tail: bytes, desk: Desk) -> None:
    before = desk.state()
    records = ",".join(f'{{"example_id":"c{i}","label":1}}' for i in range(40_000))
    assert len(records) > 1 << 20
    desk.refused(desk.labels(b'{"records":[' + records.encode() + tail), "invalid-file")
    assert desk.state() == before


@pytest.mark.extended
def test_a_long_document_may_be_laid_out_in_any_way(desk: Desk) -> None:
    rows = [{"label": i % 100, "example_id": f'{i} }} , {{ "'} for i in range(30_000)]
    answer = desk.labels(b"\xef\xbb\xbf\n " + json.dumps({"records": rows}, indent=3).encode() + b" \n")
    assert answer.json()["accepted"] == 30_000


@pytest.mark.extended
def test_columns_beyond_what_is_read_at_once_are_refused_with_advice(desk: Desk) -> None:
    body = good_body("json-columns", [f"click-{i:060}" for i in range(300_000)], [1] * 300_000)
    problem = desk.refused(desk.labels(body), "too-large", status=413)
    assert "NDJSON" in problem["detail"]


def test_whole_numbers_are_ids_in_every_format(party: LabelsParty, desk: Desk) -> None:
    big = 2**63 - 1
    for number, (form, media) in enumerate([("arrow", ARROW), ("parquet", PARQUET)]):
        table = pa.table({"example_id": pa.array([big, number], pa.int64()), "label": [1, 2]})
        batch = desk.open(desk.population)
        assert desk.labels(table_body(form, table), media, batch).status_code == 200
        desk.refused(desk.send([str(big)], [1], batch), "duplicate-id", status=409)
    batch = desk.open(desk.population)
    assert desk.labels(b'{"example_id":[123456789012345678901234567890],"label":[1]}', JSON, batch).status_code == 200
    desk.refused(desk.send(["123456789012345678901234567890"], [1], batch), "duplicate-id", status=409)


@pytest.mark.parametrize("form", sorted(MEDIA))
def test_lists_of_ids_come_in_every_format(form: str, desk: Desk) -> None:
    batch = desk.open(desk.population, "id-list")
    bodies = {
        "json-records": b'{"records":[{"example_id":"a"},{"example_id":7}]}',
        "json-columns": b'{"example_id":["a",7]}',
        "ndjson": b'{"example_id":"a"}\n{"example_id":7}',
        "csv": b"example_id\na\n7\n",
    }
    body = bodies.get(form) or table_body(form, pa.table({"example_id": ["a", "7"]}))
    path = f"/v1/batches/{batch}/examples"
    answer = desk.client.put(path, content=body, headers={"content-type": MEDIA[form]})
    assert answer.json() == {"batch": batch, "examples": 2}, answer.text
    assert desk.send([7, "a"], [1, 2], batch).status_code == 200


@pytest.mark.parametrize("form", sorted(MEDIA))
def test_units_come_with_the_ids_or_with_the_labels(form: str, desk: Desk) -> None:
    population = desk.make("units", unit_column="user", max_examples_per_unit=2, label="other")
    listed, public = desk.open(population, "id-list"), desk.open(population)
    ids = {"example_id": ["a", "b"], "unit": ["u", "v"]}
    labels = ids | {"label": [1, 2]}

    def body(columns: dict[str, list[Any]]) -> bytes:
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        if form == "json-records":
            return json.dumps({"records": rows}).encode()
        if form == "json-columns":
            return json.dumps(columns).encode()
        if form == "ndjson":
            return "\n".join(json.dumps(row) for row in rows).encode()
        if form == "csv":
            lines = [",".join(columns), *(",".join(str(v) for v in row.values()) for row in rows)]
            return "\n".join(lines).encode()
        return table_body(form, pa.table(columns))

    media = {"content-type": MEDIA[form]}
    refused = desk.client.put(f"/v1/batches/{listed}/examples", content=body({"example_id": ["a"]}), headers=media)
    assert refused.status_code == 422, refused.text
    assert desk.client.put(f"/v1/batches/{listed}/examples", content=body(ids), headers=media).status_code == 200
    assert desk.labels(body({"example_id": ["a"], "label": [3]}), MEDIA[form], public).status_code == 422
    assert desk.labels(body(labels), MEDIA[form], public).json()["accepted"] == 2
    assert desk.send(["a", "b"], [1, 2], listed).status_code == 200
    other = body(ids | {"unit": ["u", "w"]})
    assert desk.client.put(f"/v1/batches/{listed}/examples", content=body(ids), headers=media).status_code == 200
    assert desk.client.put(f"/v1/batches/{listed}/examples", content=other, headers=media).status_code == 409


@pytest.mark.parametrize("unit", ["", "x" * 513, None, 1.5, ["u"]])
def test_a_bad_unit_is_named_by_row(unit: Any, desk: Desk) -> None:
    batch = desk.open(desk.make("units", unit_column="user", max_examples_per_unit=2, label="other"))
    body = json.dumps({"example_id": ["a", "b"], "label": [1, 2], "unit": ["u", unit]}).encode()
    problem = desk.refused(desk.labels(body, batch=batch), "invalid-rows", "x" * 50)
    assert [(r["row"], r["field"]) for r in problem["rows"]] == [(2, "unit")]


@pytest.mark.extended
def test_the_document_describes_every_body(desk: Desk) -> None:
    paths = desk.client.get("/openapi.json").json()["paths"]
    for path, method in (("labels", "post"), ("labels", "delete"), ("examples", "put")):
        content = paths[f"/v1/batches/{{batch}}/{path}"][method]["requestBody"]["content"]
        assert set(content) == {JSON, NDJSON, CSV, ARROW, PARQUET}
        for kind in (JSON, NDJSON, CSV):
            assert content[kind].get("example") or content[kind].get("examples")
        batch = desk.open(desk.population, "id-list")
        target = f"/v1/batches/{batch}/{path}"
        if path == "labels":
            desk.client.put(f"/v1/batches/{batch}/examples", json={"example_id": ["click-1", "click-2"]})
        samples = [(JSON, json.dumps(e["value"])) for e in content[JSON]["examples"].values()]
        for kind, text in [*samples, (NDJSON, content[NDJSON]["example"]), (CSV, content[CSV]["example"])]:
            answer = desk.client.request(method, target, content=text, headers={"content-type": kind})
            assert answer.status_code == 200 or answer.json()["code"] == "duplicate-id", answer.text


def test_other_columns_are_passed_over(desk: Desk) -> None:
    table = pa.table({"z": np.arange(2), "label": [1, 2], "list": [[1], [2]], "example_id": ["a", "b"]})
    assert desk.labels(table_body("arrow", table), ARROW).json()["accepted"] == 2
    batch = desk.open(desk.population)
    assert desk.labels(b"x,label,y,example_id\n1,2,,a\n", CSV, batch).json()["accepted"] == 1
