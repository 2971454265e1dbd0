"""Ways around the front door that a review found: each was open once."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.documents.manifest import Manifest
from label_dp.documents.rows import read_message
from label_dp.domain import Domain
from label_dp.errors import (
    InvalidInput,
    InvalidLoss,
    InvalidMechanism,
    InvalidPrior,
    LabelDPError,
    MalformedManifest,
    Unavailable,
)
from label_dp.losses import MatrixLoss
from label_dp.privacy import Epsilon
from labels_party.files.message import write_out
from labels_party.message.engine import LocalEngine
from tests.support.asked import release_wish
from tests.support.asking import population as parse_population
from tests.support.asking import privatize
from tests.support.asking import request as parse_request
from tests.support.labels import LabelsParty, label_table

PARQUET = {"Content-Type": "application/vnd.apache.parquet"}
QUIET = lambda _what, _share: None  # noqa: E731 - a progress hook that shows nothing


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def open_batch(owner: Any, **rules: Any) -> str:
    body = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "5"} | rules
    owner.post("/v1/populations", json=body)
    return str(owner.post("/v1/populations/shop/batches").json()["id"])


# --- what others can see -----------------------------------------------------------------------------------


def test_asking_again_for_a_list_does_not_tell_whether_labels_came(party: LabelsParty) -> None:
    owner, publisher = party.client(), party.client("features")
    ids = {"example_id": ["victim"]}
    answers = []
    for batch, labelled in ((open_batch(owner, missing_label=0), False), (open_batch(owner), True)):
        assert publisher.put(f"/v1/batches/{batch}/examples", json=ids).status_code == 200
        if labelled:
            record = {"example_id": ["victim"], "label": [7]}
            assert owner.post(f"/v1/batches/{batch}/labels", json=record).status_code == 200
        same = publisher.put(f"/v1/batches/{batch}/examples", json=ids)
        other = publisher.put(f"/v1/batches/{batch}/examples", json={"example_id": ["victim", "x"]})
        answers.append([(a.status_code, a.text.replace(batch, "BATCH")) for a in (same, other)])
    assert answers[0] == answers[1]
    assert [status for status, _ in answers[0]] == [200, 409]


def test_metrics_do_not_count_what_depends_on_labels(party: LabelsParty) -> None:
    owner = party.client()
    batch = open_batch(owner, out_of_domain="refuse")
    owner.put(f"/v1/batches/{batch}/examples", json={"example_id": ["a", "b"]})
    before = owner.get("/metrics").text
    for label in (5, 11):
        owner.post(f"/v1/batches/{batch}/labels", json={"example_id": ["a"], "label": [label]})
    assert owner.put(f"/v1/batches/{batch}/examples", json={"example_id": ["a", "c"]}).status_code == 409
    assert owner.post(f"/v1/batches/{batch}/seal").status_code == 409

    def counted(text: str) -> set[str]:
        return {line for line in text.splitlines() if "batches" in line and not line.startswith("#")}

    assert counted(owner.get("/metrics").text) == counted(before)


def test_a_prior_is_carried_only_to_those_who_received_it(party: LabelsParty, tmp_path: Path) -> None:
    """It goes out with the message, so another population's audience would get what it is denied."""
    owner = party.client()

    def sealed(name: str, *audiences: str) -> str:
        body = {"name": name, "label": name, "domain": "0:10", "lifetime_epsilon": "5", "audiences": audiences}
        assert owner.post("/v1/populations", json=body).status_code == 201
        batch = str(owner.post(f"/v1/populations/{name}/batches", json={"presence": "public"}).json()["id"])
        labels = {"example_id": [f"{name}-{i}" for i in range(50)], "label": [i % 7 for i in range(50)]}
        owner.post(f"/v1/batches/{batch}/labels", json=labels)
        assert owner.post(f"/v1/batches/{batch}/seal").status_code == 200
        return batch

    release = party.release(sealed("first", "one", "two"))
    for name, audiences, status in (("same", ["one"], 202), ("other", ["one", "three"], 422)):
        wanted = {"epsilon": "1", "prior": {"release": release}}
        answer = owner.post(f"/v1/batches/{sealed(name, *audiences)}/releases", json=wanted)
        assert answer.status_code == status, answer.text
        assert answer.json().get("code") == ("invalid-prior" if status == 422 else None)
    written = write_out(party.services, release, tmp_path / "m.parquet")
    other = party.services.database.read("other", lambda c: party.services.populations.get(c, "other"))
    with pytest.raises(InvalidPrior, match="audience"):
        parse_request(party.services, other, epsilon="1", prior=written["message"])


def test_a_file_without_a_header_does_not_have_its_first_row_quoted(party: LabelsParty) -> None:
    owner = party.client()
    batch = open_batch(owner)
    answer = owner.post(f"/v1/batches/{batch}/labels", content="click-9,123.45\n", headers={"Content-Type": "text/csv"})
    assert answer.status_code == 422
    assert "123.45" not in answer.text
    assert "2 columns" in answer.json()["detail"]


def test_a_bug_leaves_its_kind_in_the_log_and_nothing_else(
    party: LabelsParty, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner = party.client()
    batch = open_batch(owner)

    def bug(*_: object, **__: object) -> None:
        raise ValueError("123.45-SECRET")

    monkeypatch.setattr(party.services.intake, "add_labels", bug)
    with caplog.at_level(logging.DEBUG):
        answer = owner.post(f"/v1/batches/{batch}/labels", json={"example_id": ["a"], "label": [1]})
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "ValueError" in caplog.text
    assert "SECRET" not in caplog.text + answer.text
    assert all(record.exc_info is None for record in caplog.records)


def test_nobody_without_a_key_has_a_body_read(party: LabelsParty) -> None:
    owner = party.client()
    nobody = type(owner)(owner.app, raise_server_exceptions=False)
    for body in (b"{", b"x" * 1000):
        answer = nobody.post("/v1/populations", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 401
    big = owner.post("/v1/populations", content=b" " * (1 << 26) + b"{}", headers={"Content-Type": "application/json"})
    assert big.status_code == 413  # the large limit is for uploads only


def test_with_enough_epsilon_the_label_itself_comes_out(party: LabelsParty) -> None:
    batch = party.sealed_batch(pa.table({"example_id": ["a", "b"], "label": [3.0, 3.0]}), lifetime="60")
    release = party.release(batch, "60")  # so much ε that the label itself comes out
    table = pq.read_table(party.bundle(release).path / "message.parquet")
    assert np.round(table["label"].to_numpy()).tolist() == [3.0, 3.0]


# --- budget ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "label",
    [
        *("revenue\ufe0f", "rev\u034fenue", "\u3164revenue", "revenue\u17b4", "rev\u200benue"),
        *("revenue\u2800", "revenue\U0001d159", "net  revenue"),
    ],
)
def test_a_label_name_with_invisible_characters_is_no_second_budget(label: str) -> None:
    with pytest.raises(InvalidInput, match="visible"):
        parse_population("p", label, Domain.parse("0:10"), "1")


def test_a_prior_beside_a_foreign_message_is_not_taken_as_declared(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "a") as ours, LabelsParty(tmp_path / "b") as theirs:
        release = theirs.release(theirs.sealed_batch(label_table(100)))
        folder = theirs.bundle(release).path
        declared = parse_population("p", "revenue", Domain.parse("0:10"), "1")
        with pytest.raises(InvalidPrior, match="part of a message"):
            parse_request(ours.services, declared, epsilon="1", prior=str(folder / "prior.parquet"))
        beside = tmp_path / "m.parquet"
        for name, source in (("m.parquet", "message.parquet"), ("m.prior.parquet", "prior.parquet")):
            (tmp_path / name).write_bytes((folder / source).read_bytes())
        beside.with_name("m.parquet.dsse.json").write_bytes((folder / "manifest.dsse.json").read_bytes())
        with pytest.raises(InvalidPrior, match="part of a message"):
            parse_request(ours.services, declared, epsilon="1", prior=str(tmp_path / "m.prior.parquet"))
        with pytest.raises(LabelDPError, match="signing key"):
            parse_request(ours.services, declared, epsilon="1", prior=str(beside))
        with pytest.raises(InvalidPrior, match="inside the home"):
            parse_request(theirs.services, declared, epsilon="1", prior=str(folder))


def test_what_the_draw_would_refuse_is_refused_before_the_charge(party: LabelsParty) -> None:
    batch = party.sealed_batch(label_table(50))
    values = np.arange(11.0)
    matrix = MatrixLoss(values, values, np.abs(values[:, None] - values[None, :]))
    with pytest.raises((InvalidLoss, InvalidMechanism)):
        party.charge(batch, mechanism="one-bit", prior="uniform", loss=matrix)
    assert party.spent(batch) == "0"


def test_an_interrupted_additional_release_is_not_charged_again(
    party: LabelsParty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = tmp_path / "labels.parquet"
    pq.write_table(label_table(60), labels)
    declared = parse_population("shop", "label", Domain.parse("0:10"), "9")

    def run(out: str) -> dict[str, Any]:
        request = release_wish(Epsilon.parse("1"), additional_release=True)
        return privatize(party.services, labels, declared, request, tmp_path / out)

    first = run("a.parquet")
    with monkeypatch.context() as patch:
        patch.setattr("labels_party.files.message.finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run("b.parquet")
    assert run("b.parquet")["epsilon_spent"] == "2"
    assert party.spent(str(first["batch"])) == "2"


# --- releases that must not hang ---------------------------------------------------------------------------


def test_a_release_whose_lease_was_lost_on_the_way_is_taken_again(
    party: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply of the lease transaction is lost: the release names us as its worker, and nobody works on it."""
    release = party.charge(party.sealed_batch(label_table(50)))
    pipeline = party.services.pipeline
    write = pipeline.database.write

    def lost(name: str, work: Any) -> Any:
        found = write(name, work)
        if name == "release.lease":
            raise Unavailable("The reply was lost.")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(pipeline.database, "write", lost)
        with pytest.raises(Unavailable):
            pipeline.run(release)
    assert party.state(release).lease_owner == pipeline.worker.name
    assert pipeline.run(release)
    assert party.state(release).state == "published"


def test_a_database_that_fails_twice_leaves_a_release_that_can_be_finished(
    party: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = party.charge(party.sealed_batch(label_table(50)))
    pipeline = party.services.pipeline
    write = pipeline.database.write

    def failing(name: str, work: Any) -> Any:
        if name in ("release.publish", "release.abandon"):
            raise Unavailable("The database failed.")
        return write(name, work)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline.database, "write", failing)
        with pytest.raises(Unavailable):
            pipeline.run(release)
    assert pipeline.run(release)
    assert party.state(release).attempt == 2


def test_a_failure_that_the_draw_may_have_decided_is_final(party: LabelsParty) -> None:
    batch = party.sealed_batch(label_table(50))
    release = party.charge(batch)

    class Broken(LocalEngine):
        def draw(self, job: Any) -> Any:
            super().draw(job)
            raise ZeroDivisionError

    party.services.message.engine = Broken()
    with pytest.raises(ZeroDivisionError):
        party.services.pipeline.run(release)
    state = party.state(release)
    assert (state.state, state.problem["code"]) == ("failed", "internal")
    assert party.spent(batch) == "1"
    assert party.services.pipeline.run(release) is False


def test_space_is_reserved_for_every_file_before_anything_is_drawn(
    party: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = party.charge(party.sealed_batch(label_table(50)))
    reserved: list[str] = []
    from labels_party.message import engine
    from labels_party.work import pipeline

    def note(path: Path, size: int) -> None:
        reserved.append(path.name)
        reserve(path, size)

    reserve = engine.reserve
    prior = LocalEngine()._prior

    def checked(job: Any) -> Any:
        assert set(reserved) == {"manifest.dsse.json", "message.parquet", "prior.parquet"}
        return prior(job)

    monkeypatch.setattr(engine, "reserve", note)
    monkeypatch.setattr(pipeline, "reserve", note)
    monkeypatch.setattr(LocalEngine, "_prior", staticmethod(checked))
    assert party.services.pipeline.run(release)
    for path in party.bundle(release).path.iterdir():
        assert path.stat().st_size < 20_000  # what was reserved and not needed is given back


# --- bombs -------------------------------------------------------------------------------------------------


def test_a_list_of_ids_that_expands_is_refused_early(party: LabelsParty) -> None:
    publisher = party.client("features")
    batch = open_batch(party.client())
    bomb = parquet(pa.table({"example_id": pa.array(["x" * 400] * 600_000).dictionary_encode()}))
    assert len(bomb) < 100_000
    answer = publisher.put(f"/v1/batches/{batch}/examples", content=bomb, headers=PARQUET)
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


def test_a_signed_message_that_expands_is_refused(party: LabelsParty, tmp_path: Path) -> None:
    release = party.release(party.sealed_batch(label_table(300)))
    folder = party.bundle(release).path
    manifest = Manifest.from_payload(Manifest.model_validate_json(_payload(folder)).payload())
    good = pq.read_table(folder / "message.parquet")
    for ids, dictionary in ((["x" * 100_000] * 300, True), (["x" * 600] * 300, False)):
        path = tmp_path / f"{dictionary}.parquet"
        table = good.set_column(0, good.schema.field(0), pa.array(ids))
        pq.write_table(table, path, use_dictionary=dictionary)
        with pytest.raises(MalformedManifest, match="call for"):
            read_message([path], manifest)


def _payload(folder: Path) -> bytes:
    import base64
    import json

    return base64.b64decode(json.loads((folder / "manifest.dsse.json").read_bytes())["payload"])


def test_text_views_and_far_decimals_are_answered(party: LabelsParty) -> None:
    owner = party.client()
    open_batch(owner)
    batch = owner.post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"]
    views = pa.table({"example_id": ["a"], "label": pa.array(["3"], pa.string_view())})
    answer = owner.post(f"/v1/batches/{batch}/labels", content=parquet(views), headers=PARQUET)
    assert answer.status_code == 200
    with pytest.raises(InvalidInput):
        Domain.parse("0:1.6777215e-293:1e-300")
