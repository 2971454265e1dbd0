"""Reports of the labels party: pages that stand alone, and what is signed beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from deploy.verify_standalone.refusal import RefusedError
from deploy.verify_standalone.report import verify_report
from label_dp.documents.report import signature_of, verified_report
from label_dp.documents.signing import SigningKey
from label_dp.errors import DigestMismatch, InvalidFile, InvalidInput, NotFound, SignatureInvalid, VerificationFailed
from label_dp.pages.report import MOST_BYTES
from label_dp.schemas.plan import Plan
from labels_party.pages.report import plan_report, report
from labels_party.planning import planned, question
from tests.support.labels import LabelsParty, label_table

pytestmark = pytest.mark.extended

HOSTILE = '<script>alert("x")</script>'


def published(party: LabelsParty, name: str, epsilon: str, audiences: list[str], **rules: object) -> str:
    """A batch of a population of its own, released once."""
    owner = party.client("owner")
    asked = {"name": name, "label": name[:20], "domain": "0:10", "lifetime_epsilon": "3", "audiences": audiences}
    assert owner.post("/v1/populations", json=asked | rules).status_code == 201
    shop = next(p["id"] for p in owner.get("/v1/populations").json() if p["name"] == name)
    batch = str(owner.post(f"/v1/populations/{shop}/batches", json={"presence": "public"}).json()["id"])
    table = label_table(50)
    if "unit_column" in rules:
        table = table.append_column("unit", pa.array([f"u{i // 2}" for i in range(50)]))
    assert owner.post(f"/v1/batches/{batch}/labels", json=table.to_pydict()).status_code == 200
    assert owner.post(f"/v1/batches/{batch}/seal").status_code == 200
    released(party, batch, epsilon)
    return batch


def released(party: LabelsParty, batch: str, epsilon: str) -> None:
    wish = {"epsilon": epsilon, "mechanism": "rr-on-bins", "prior": "uniform", "additional_release": True}
    assert party.client("owner").post(f"/v1/batches/{batch}/releases", json=wish).status_code == 202
    party.services.worker.drain()


@pytest.fixture
def lite(tmp_path: Path) -> LabelsParty:
    return LabelsParty(tmp_path / "home", worker=False)


def test_it_has_what_went_to_the_audience_and_nothing_else(lite: LabelsParty, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    with lite as party:
        batch = published(party, "shop", "0.5", ["ads", "other"])
        released(party, batch, "1")
        published(party, HOSTILE, "0.25", ["ads"])
        published(party, "secret", "2", ["other"])
        told = report(party.services, "ads", out)
        key = party.services.key.public
    page = out.read_text(encoding="utf-8")
    assert told["given"] == 3
    assert {t["name"]: t["epsilon"] for t in told["epsilon"]} == {"shop": "1.5", HOSTILE: "0.25"}
    assert "secret" not in page
    assert "<script" not in page
    assert re.findall(r"""(?:src|href|url)\s*[=(]""", page) == []
    assert len(page.encode()) < MOST_BYTES
    found = verified_report(out, lambda _: key)
    assert (found.about, found.party) == ("What ads has", "labels-party")
    assert found.events == told_events(lite)


def told_events(party: LabelsParty) -> int:
    s = party.services
    return int(s.database.read("t", s.audit.verify)[0])


def test_a_person_has_its_own_figure(lite: LabelsParty, tmp_path: Path) -> None:
    with lite as party:
        unit = {"unit_column": "unit", "max_examples_per_unit": 2, "missing_label": "0"}
        published(party, "people", "0.5", ["ads"], **unit)
        told = report(party.services, "ads", tmp_path / "r.html")
    assert told["epsilon"] == [{"name": "people", "label": "people", "epsilon": "0.5", "per_unit": "1"}]


def test_a_page_or_a_signature_that_was_changed_is_refused(lite: LabelsParty, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    with lite as party:
        published(party, "shop", "0.5", ["ads"])
        report(party.services, "ads", out)
        key = party.services.key.public
    page = out.read_bytes()
    by_itself = (Ed25519PublicKey.from_public_bytes(key.raw), key.id)
    assert "What ads has, made " in " ".join(verify_report(out, *by_itself))
    out.write_bytes(page.replace(b"0.5", b"0.4"))
    with pytest.raises(DigestMismatch):
        verified_report(out, lambda _: key)
    with pytest.raises(RefusedError, match="not the one that was signed"):
        verify_report(out, *by_itself)
    out.write_bytes(page)
    stranger = SigningKey.generate().public
    with pytest.raises(RefusedError, match="another signing key"):
        verify_report(out, Ed25519PublicKey.from_public_bytes(stranger.raw), stranger.id)
    with pytest.raises(SignatureInvalid):
        verified_report(out, lambda _: SigningKey.generate().public)
    envelope = signature_of(out)
    signed = envelope.read_bytes()
    envelope.write_bytes(signed[:40] + bytes([signed[40] ^ 1]) + signed[41:])
    with pytest.raises(VerificationFailed):
        verified_report(out, lambda _: key)
    envelope.unlink()
    with pytest.raises(InvalidFile, match="beside it"):
        verified_report(out, lambda _: key)


def test_nothing_is_written_for_nobody_and_nothing_overwritten(lite: LabelsParty, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    with lite as party:
        published(party, "shop", "0.5", ["ads"])
        with pytest.raises(NotFound, match="'nobody'"):
            report(party.services, "nobody", out)
        assert list(tmp_path.glob("r.html*")) == []
        report(party.services, "ads", out)
        before = {path.name: path.read_bytes() for path in tmp_path.glob("r.html*")}
        with pytest.raises(InvalidInput):
            report(party.services, "ads", out)
        assert {path.name: path.read_bytes() for path in tmp_path.glob("r.html*")} == before
        assert json.loads(before["r.html.dsse.json"])["payloadType"].endswith("report+json")
        report(party.services, "ads", out, force=True)


def test_a_plan_as_one_page(lite: LabelsParty, tmp_path: Path) -> None:
    out = tmp_path / "plan.html"
    with lite as party:
        published(party, "shop", "0.5", ["ads"])
        asked = Plan(epsilon=["0.5", "1"], n=10_000)
        found = plan_report(question(party.services, "shop", asked), "shop", "2030-01-01", out)
        assert found == planned(party.services, "shop", asked)
        with pytest.raises(InvalidInput, match="exists already"):
            plan_report(question(party.services, "shop", asked), "shop", "2030-01-01", out)
    page = out.read_text(encoding="utf-8")
    assert page.count("Mechanisms at ε") == 2
    assert page.count("<svg") == 1
    assert "style=" not in page
    assert len(page.encode()) < MOST_BYTES
