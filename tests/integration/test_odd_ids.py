"""Ids that are odd but text: they go the whole way and arrive as they were sent; too long ones are named."""

from __future__ import annotations

import pyarrow as pa

from label_dp.documents.bundle import verify
from label_dp.documents.rows import read_message
from tests.support.desk import Desk
from tests.support.label_storm import UNTOLD
from tests.support.labels import LabelsParty
from tests.support.upload_formats import MEDIA, good_body

ODD = [
    "nul\0inside", "\0", "\ufeffmark", "\u202eright to left", "tab\t", "line\nbreak", 'quote"quote', "comma,comma", "'",
    " leading", "trailing ", "é", "e\u0301", "\U0001f600", "\uffff", "\u200b", "NULL", "null", "NaN", "None", "true",
    "-0",
    "007", "1e3", "0x10", "=1+1", "../../etc/passwd", "a/b", "%00", "{}", "[]", "x" * 512, "é" * 256, "\x7f", "\x01",
]  # fmt: skip


def test_odd_ids_arrive_as_they_were_sent(party: LabelsParty) -> None:
    batch = party.sealed_batch(pa.table({"example_id": ODD, "label": [float(i % 11) for i in range(len(ODD))]}))
    release = party.release(batch)
    verified = verify(party.bundle(release).path, party.services.key.public, "features-party")
    table = read_message(list(verified.paths), verified.manifest)
    assert table["example_id"].to_pylist() == sorted(ODD, key=str.encode)


def test_every_format_takes_odd_ids_and_says_the_same(desk: Desk) -> None:
    # CSV quotes what it must; a bare carriage return or quote is not in the list, for which CSV has no one reading
    told = set()
    for form, media in MEDIA.items():
        if form == "csv":
            quoted = [f'"{i.replace(chr(34), chr(34) * 2)}",1\n' for i in ODD]
            body = ("example_id,label\n" + "".join(quoted)).encode()
        else:
            body = good_body(form, ODD, [1.0] * len(ODD))
        batch = desk.open(desk.make(form, label=form))
        answer = desk.labels(body, media, batch)
        headers = sorted((k, v) for k, v in answer.headers.items() if k not in UNTOLD)
        told.add((answer.status_code, answer.text.replace(batch, "BATCH"), str(headers)))
        assert desk.client.post(f"/v1/batches/{batch}/seal").json()["examples"] == len(ODD)
    assert {status for status, _, _ in told} == {200}
    assert len(told) == 1


def test_an_id_of_ten_kilobytes_is_named_by_row_in_every_format(desk: Desk) -> None:
    before = desk.state()
    for form, media in MEDIA.items():
        for size in (513, 10_000):
            long = "long-id-" * (size // 8 + 1)
            answer = desk.labels(good_body(form, ["a", long[:size], "b"], [1.0, 2.0, 3.0]), media)
            problem = desk.refused(answer, "invalid-rows", "long-id-long-id")
            assert [(r["row"], r["field"]) for r in problem["rows"]] == [(2, "example_id")], form
    assert desk.state() == before
