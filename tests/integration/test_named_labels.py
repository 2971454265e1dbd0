"""Labels that are names of classes: in by every format, stored as codes, refused by row without being repeated."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from deploy.verify_standalone.message import open_manifest
from label_dp.documents.bundle import FOLDER_ENVELOPE, verify
from labels_party.contents import of_message
from labels_party.labels.batches import SEALED
from labels_party.labels.parsing import EMPTY
from labels_party.labels.seal import SealedLabels
from tests.support.desk import Desk, parquet
from tests.support.labels import LabelsParty
from tests.support.labels_api import published
from tests.support.labels_cli import Run, arguments, refused
from tests.support.upload_formats import COLUMN_FORMATS, MEDIA, PARQUET, table_body, text_body, token

pytestmark = pytest.mark.extended

NAMES = ["toys", "books", "home, garden", 'żółty "x"', "None", "?"]
RULE = "must be one of the names of the label domain, as text"
IDS = [f"c{i}" for i in range(40)]
LABELS = [NAMES[i % len(NAMES)] for i in range(40)]


@pytest.fixture
def shop(desk: Desk) -> str:
    """An open batch of a population of names."""
    return desk.open(desk.make("named", label="category", domain=NAMES, missing_label="None"))


def body(form: str, ids: list[str], labels: list[str]) -> bytes:
    if form in COLUMN_FORMATS:
        return table_body(form, pa.table({"example_id": ids, "label": labels}))
    if form == "csv":
        labels = ['"' + label.replace('"', '""') + '"' for label in labels]
        return text_body(form, ids, labels)
    return text_body(form, [token(form, i) for i in ids], [json.dumps(v) for v in labels])


def stored(party: LabelsParty, batch: str) -> dict[str, int]:
    s = party.services
    (segment,) = s.database.read("test.segments", lambda c: s.batches.segments(c, batch, SEALED))
    chunks = list(SealedLabels(s.vault, segment.key).chunks())
    return {str(i): int(p) for ids, positions in chunks for i, p in zip(ids.to_pylist(), positions, strict=True)}


@pytest.mark.parametrize("form", sorted(MEDIA))
def test_names_arrive_as_codes(form: str, desk: Desk, shop: str) -> None:
    answer = desk.labels(body(form, IDS, LABELS), MEDIA[form], shop)
    assert answer.json() == {"batch": shop, "accepted": 40}, answer.text
    assert desk.client.post(f"/v1/batches/{shop}/seal").status_code == 200
    assert stored(desk.party, shop) == {i: NAMES.index(label) for i, label in zip(IDS, LABELS, strict=True)}


@pytest.mark.parametrize("form", sorted(MEDIA))
@pytest.mark.parametrize(
    "bad", ["TOYS", "toys ", " toys", "toy", "1", "secret-7319462", "home", "x" * 600, "\u200btoys"]
)
def test_any_other_text_is_named_by_row_and_rule(form: str, bad: str, desk: Desk, shop: str) -> None:
    before, labels = desk.state(), [*LABELS]
    labels[17] = bad
    secrets = [bad] if len(bad) > 6 and bad.strip("\u200b") == bad else []
    problem = desk.refused(desk.labels(body(form, IDS, labels), MEDIA[form], shop), "invalid-rows", *secrets)
    (row,) = problem["rows"]
    assert (row["row"], row["field"], row["rule"], problem["rejected"]) == (18, "label", RULE, 1)
    assert row.get("line") == {"ndjson": 18, "csv": 19}.get(form)
    assert desk.state() == before


@pytest.mark.parametrize("text", ["0", "1.5", "null", "true", '["toys"]', '{"a":1}', '"\\ud800"', '""'])
def test_what_is_no_text_in_json_is_no_name(text: str, desk: Desk, shop: str) -> None:
    before = desk.state()
    sent = f'{{"example_id":["a","b"],"label":["toys",{text}]}}'.encode()
    problem = desk.refused(desk.labels(sent, batch=shop), "invalid-rows", "ud800")
    rule = EMPTY if text in ("null", '""') else RULE
    assert [(r["row"], r["field"], r["rule"]) for r in problem["rows"]] == [(2, "label", rule)]
    assert desk.state() == before


@pytest.mark.parametrize("form", sorted(COLUMN_FORMATS))
def test_columns_of_numbers_are_refused_whole(form: str, desk: Desk, shop: str) -> None:
    sent = table_body(form, pa.table({"example_id": ["a"], "label": [7319462.0]}))
    problem = desk.refused(desk.labels(sent, MEDIA[form], shop), "invalid-table", "7319462")
    assert "names of classes as text" in problem["detail"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_every_text_type_of_a_column_is_read(kind: pa.DataType, desk: Desk, shop: str) -> None:
    labels = pa.array(LABELS).cast(kind) if not pa.types.is_dictionary(kind) else pa.array(LABELS).dictionary_encode()
    assert desk.labels(parquet(example_id=IDS, label=labels), PARQUET, shop).status_code == 200


def test_numbers_do_not_take_names(desk: Desk) -> None:
    """The control: the same upload to a population of numbers."""
    problem = desk.refused(desk.labels(body("json-columns", IDS, LABELS)), "invalid-rows", "garden")
    assert problem["rows"][0]["rule"] == "must be a number"


def test_an_upsert_replaces_and_deletes(desk: Desk, shop: str) -> None:
    assert desk.labels(body("json-columns", IDS, LABELS), batch=shop).status_code == 200
    path = f"/v1/batches/{shop}/labels?mode=upsert"
    assert desk.client.post(path, json={"example_id": ["c0", "c1"], "label": ["home, garden", None]}).status_code == 200
    assert desk.client.post(f"/v1/batches/{shop}/seal").status_code == 200
    found = stored(desk.party, shop)
    assert (found["c0"], found["c1"], found["c2"]) == (2, NAMES.index("None"), 2)


@pytest.mark.parametrize("blank", ["", " "])
def test_in_json_only_null_deletes(blank: str, desk: Desk, shop: str) -> None:
    path = f"/v1/batches/{shop}/labels?mode=upsert"
    answer = desk.client.post(path, json={"example_id": ["c0", "c1"], "label": ["toys", blank]})
    assert (answer.status_code, answer.json()["rows"][0]["row"]) == (422, 2)


def test_a_replayed_upload_is_one_upload_and_another_body_is_refused(desk: Desk, shop: str) -> None:
    path, key = f"/v1/batches/{shop}/labels", {"idempotency-key": "k1"}
    first, second = (desk.client.post(path, json={"example_id": ["a"], "label": ["toys"]}, headers=key) for _ in "12")
    assert (
        (first.status_code, first.json())
        == (second.status_code, second.json())
        == (200, {"batch": shop, "accepted": 1})
    )
    other = desk.client.post(path, json={"example_id": ["a"], "label": ["books"]}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-conflict")
    again = desk.client.post(path, json={"example_id": ["a"], "label": ["toys"]})
    assert again.json()["code"] == "duplicate-id"


@pytest.mark.parametrize("seed", range(20))
def test_planted_errors_are_found_row_by_row(seed: int, desk: Desk) -> None:
    """Random names, random formats, and rows that hold a name with one letter changed, dropped or added."""
    rng = random.Random(seed)
    letters = "abcXYZ é\"',;:{}\\/żλ中😀0123"
    names = sorted(
        {"".join(rng.choices(letters, k=rng.randint(1, 9))).strip() + "#" for _ in range(rng.randint(2, 60))}
    )
    names += ["last one"]
    labels = rng.choices(names, k=200)
    planted = sorted(rng.sample(range(200), rng.randint(0, 4)))
    for row in planted:
        at, name = rng.randrange(len(labels[row])), labels[row]
        changed = rng.choice(
            [name[:at] + name[at + 1 :], name[:at] + "q" + name[at:], name[:at] + "Q" + name[at + 1 :]]
        )
        labels[row] = changed if changed not in names and changed.strip() else name + "Q"
    batch = desk.open(desk.make(f"random {seed}", label=f"category {seed}", domain=names))
    form = rng.choice(sorted(MEDIA))
    answer = desk.labels(body(form, [f"c{i}" for i in range(200)], labels), MEDIA[form], batch)
    assert answer.status_code == (422 if planted else 200), (form, answer.text)
    assert [r["row"] for r in answer.json().get("rows", [])] == [row + 1 for row in planted]
    if not planted:
        desk.client.post(f"/v1/batches/{batch}/seal")
        assert stored(desk.party, batch) == {f"c{i}": names.index(v) for i, v in enumerate(labels)}


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"domain": ["toys", "toys"]}, "one of them occurs twice"),
        ({"domain": ["toys", "1"]}, "Name 1 of the domain"),
        ({"domain": ["toys"]}, "between 2 and 100"),
        ({"domain": NAMES, "out_of_domain": "clip"}, "'refuse' only"),
        ({"domain": NAMES, "missing_label": "cars"}, "one of the names"),
        ({"domain": NAMES, "missing_label": 0}, "one of the names"),
    ],
)
def test_a_population_of_names_is_declared_strictly(rules: dict[str, Any], words: str, desk: Desk) -> None:
    asked = {"name": "p", "label": "l", "lifetime_epsilon": "1"} | rules
    answer = desk.client.post("/v1/populations", json=asked)
    assert (answer.status_code, words in answer.json()["detail"]) == (422, True), answer.text
    found = desk.client.post(
        "/v1/populations", json=asked | {"domain": NAMES, "missing_label": "?", "out_of_domain": None}
    )
    assert (found.status_code, found.json()["out_of_domain"], found.json()["domain"]) == (
        201,
        "refuse",
        {"names": NAMES},
    )


def test_a_message_of_names_from_upload_to_signed_document(desk: Desk, shop: str) -> None:
    party, client = desk.party, desk.client
    ids = [f"c{i:05d}" for i in range(3000)]
    labels = [NAMES[min(i % 7, 5)] for i in range(3000)]
    assert desk.labels(body("ndjson", ids, labels), MEDIA["ndjson"], shop).status_code == 200
    assert client.post(f"/v1/batches/{shop}/seal").status_code == 200
    plan = client.get("/v1/populations/named/plan", params={"epsilon": "1", "batch": shop}).json()
    assert (plan["loss"], {m["mechanism"] for m in plan["mechanisms"]}) == (
        "log",
        {"rr", "rr-with-prior", "subset-selection"},
    )
    assert "labels tell as much as" in plan["recommendations"][0]["why"]
    asked = {"epsilon": "1", "prior": "estimate"}
    release = client.post(f"/v1/batches/{shop}/releases", json=asked).json()["id"]
    published(client, release)
    folder, key = party.bundle(release).path, party.services.key.public
    envelope = folder / FOLDER_ENVELOPE if folder.is_dir() else folder.with_name(folder.name + ".dsse.json")
    standalone, _ = open_manifest(envelope.read_bytes(), key.key, key.id, "features-party")
    manifest = verify(folder, key, "features-party").manifest
    assert standalone["domain"] == manifest.domain.as_json() == {"names": NAMES}
    assert (manifest.out_of_domain, manifest.missing_label, manifest.loss) == ("refuse", "None", "log")
    assert 0 < float(manifest.expected_loss or "nan") < np.log(len(NAMES))
    shown = of_message(manifest)
    assert shown["names"] == NAMES
    assert set(shown["outputs"]) <= set(NAMES)
    page = client.get(f"/v1/releases/{release}/statement").text
    assert all(name in page for name in ("toys", "books", "home, garden"))


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("medians", {"epsilon": "1"}),
        ("releases", {"epsilon": "1", "mechanism": "one-bit"}),
        ("releases", {"epsilon": "1", "loss": "squared"}),
        ("releases", {"epsilon": "1", "clip_quantile": "0.9", "clip_epsilon": "0.1"}),
    ],
)
def test_what_needs_numbers_is_refused_at_no_charge(path: str, asked: dict[str, Any], desk: Desk) -> None:
    for names, allowed in ((NAMES, False), (["no", "yes"], True)):
        batch = desk.open(desk.make(f"of {len(names)}", label=f"l{len(names)}", domain=names))
        assert desk.send(IDS, [names[i % 2] for i in range(40)], batch).status_code == 200
        desk.client.post(f"/v1/batches/{batch}/seal")
        answer = desk.client.post(f"/v1/batches/{batch}/{path}", json=asked)
        assert answer.status_code == (202 if allowed else 422), answer.text
        assert allowed or "classes with names" in answer.json()["detail"]
        assert (desk.party.spent(batch) == "0") != allowed


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("rectangles", {"epsilon": "1", "threshold": 1, "features": [{"name": "x", "range": [0, 9]}]}),
        ("linear-models", {"epsilon": "1", "features": [{"name": "x", "range": [0, 9]}]}),
        ("calibrations?epsilon=1", {"example_id": ["c0", "c1"], "score": [0.5, 1.5]}),
    ],
)
def test_answers_of_classes_are_refused_before_features_are_looked_for(
    path: str, asked: dict[str, Any], desk: Desk
) -> None:
    """The control: of two names the same call goes further, to a charge or to the features that are not there."""
    for names in (NAMES, ["no", "yes"]):
        batch = desk.open(desk.make(f"of {len(names)}", label=f"l{len(names)}", domain=names))
        assert desk.send(IDS, [names[i % 2] for i in range(40)], batch).status_code == 200
        desk.client.post(f"/v1/batches/{batch}/seal")
        answer = desk.client.post(f"/v1/batches/{batch}/{path}", json=asked)
        refused_so = "classes with names" in answer.json().get("detail", "")
        assert refused_so == (names is NAMES), answer.text
        assert not refused_so or (answer.status_code, desk.party.spent(batch)) == (422, "0")


def test_a_template_without_a_loss_releases_classes(desk: Desk) -> None:
    population = desk.make("shop of names", label="category", domain=NAMES)
    asked = {"presence": "public", "seal_at": "2035-01-31T04:00:00Z", "release": {"epsilon": "1"}}
    found = desk.client.post(f"/v1/populations/{population}/batches", json=asked)
    assert found.status_code == 201, found.text
    asked["release"] = {"epsilon": "1", "loss": "squared"}
    answer = desk.client.post(f"/v1/populations/{population}/batches", json=asked)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-loss")


def test_a_plan_of_two_names_speaks_of_the_second(desk: Desk) -> None:
    desk.make("switch", label="bought", domain=["no", "yes"])
    found = desk.client.get("/v1/populations/switch/plan", params={"epsilon": "1", "n": 1000}).json()
    assert found["two_values"]["worth"][0]["value"] == "yes"
    assert found["recommendations"][0]["mechanism"] == "rr"
    told = desk.client.get("/v1/populations/shop/plan", params={"epsilon": "1", "n": 1000}).json()
    assert "expected_model_error" in told["mechanisms"][0]
    assert "share_of_information" not in told["mechanisms"][0]


def test_a_prior_by_hand_is_a_file_of_names(run: Run, tmp_path: Path) -> None:
    names, file, prior = ["books", "garden", "toys"], tmp_path / "labels.csv", tmp_path / "prior.csv"
    labels = pa.table({"example_id": [f"c{i:03d}" for i in range(300)], "label": [names[i % 3] for i in range(300)]})
    pyarrow.csv.write_csv(labels, file)
    pyarrow.csv.write_csv(pa.table({"label": names, "probability": [0.5, 0.49, 0.01]}), prior)
    asked = {"domain": "books,garden,toys", "mechanism": "rr-with-prior", "prior": str(prior)}
    assert run(*arguments(file, str(tmp_path / "m.parquet"), **asked)).code == 0
    assert run("inspect", str(tmp_path / "m.parquet"), "--json").json["prior"] == "declared public by the owner"
    pyarrow.csv.write_csv(pa.table({"label": ["toys", "books", "garden"], "probability": [0.5, 0.49, 0.01]}), prior)
    refused(run(*arguments(file, "x.parquet", **asked | {"population": "p"})), 2, "in its order")
    pyarrow.csv.write_csv(pa.table({"label": ["books", "cars", "toys"], "probability": [0.5, 0.49, 0.01]}), prior)
    refused(run(*arguments(file, "x.parquet", **asked | {"population": "p"})), 2, "must hold names of the domain")


def test_by_the_command_line(run: Run, tmp_path: Path) -> None:
    names = ["books", "garden", "toys"]
    file, labels = tmp_path / "labels.csv", [names[i % 3] for i in range(300)]
    pyarrow.csv.write_csv(pa.table({"example_id": [f"c{i:03d}" for i in range(300)], "label": labels}), file)
    asked = {"domain": "books,garden,toys", "mechanism": None, "missing_label": "toys"}
    assert run(*arguments(file, str(tmp_path / "m.parquet"), **asked)).code == 0
    shown = run("inspect", str(tmp_path / "m.parquet"), "--json").json
    assert (shown["names"], shown["outputs"], shown["loss"]) == (names, names, "log")
    domain = tmp_path / "domain.parquet"
    pq.write_table(pa.table({"label": names}), domain)
    again = arguments(file, str(tmp_path / "n.parquet"), **asked | {"domain": str(domain)})
    assert run(*again, "--additional-release").code == 0  # of the same population: the file says the same domain
    other = asked | {"missing_label": None, "population": "p"}
    refused(run(*arguments(file, "x.parquet", **other | {"domain": "1,2,3"})), 2, "LO:HI")
    refused(
        run(*arguments(file, "x.parquet", **other | {"domain": "books,garden"})), 2, "Row 3 (counting from 1), line 4"
    )
