"""Every operation × role × somebody else's object: the same answer as for an object that does not exist.

The operations come from the OpenAPI documents, so that a new one fails here until it is said who may call it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from labels_party.bootstrap import ROLES as LABELS_ROLES
from tests.support.calibrations import charged, score_table, signed
from tests.support.denial import Operation, answers, operations, unlike
from tests.support.features_api import Api, message_files, running
from tests.support.labels import LabelsParty, label_table
from tests.support.messages import Sender
from tests.support.predicting import made

OWNER = {"owner"}
PUBLISHER = {"owner", "features"}
OFFICER = {"owner", "auditor"}
APPROVER = {*OFFICER, "approver"}

LABELS: dict[str, set[str]] = {
    "POST /v1/populations": OWNER,
    "POST /v1/people": OWNER,
    "GET /v1/people": OFFICER,
    "GET /v1/people/{people}/budget": OFFICER,
    "POST /v1/people/{people}/erasures": OWNER,
    "GET /v1/populations": APPROVER,
    "GET /v1/populations/{population}": APPROVER,
    "POST /v1/populations/{population}/batches": OWNER,
    "GET /v1/populations/{population}/batches": OFFICER,
    "GET /v1/populations/{population}/plan": APPROVER,
    "GET /v1/populations/{population}/budget": APPROVER,
    "GET /v1/populations/{population}/releases": OFFICER,
    "POST /v1/populations/{population}/erasures": OWNER,
    "GET /v1/populations/{population}/erasures": OFFICER,
    "GET /v1/given": APPROVER,
    "GET /v1/batches": OFFICER,
    "GET /v1/batches/{batch}": APPROVER,
    "PATCH /v1/batches/{batch}": OWNER,
    "DELETE /v1/batches/{batch}": OWNER,
    "PUT /v1/batches/{batch}/examples": PUBLISHER,
    "POST /v1/batches/{batch}/labels": {"owner", "ingest"},
    "DELETE /v1/batches/{batch}/labels": {"owner", "ingest"},
    "POST /v1/events": {"owner", "ingest"},
    "GET /v1/batches/{batch}/events": OWNER,
    "GET /v1/batches/{batch}/set-aside": OWNER,
    "POST /v1/batches/{batch}/set-aside/{upload}": OWNER,
    "POST /v1/batches/{batch}/seal": OWNER,
    "POST /v1/batches/{batch}/purge": OWNER,
    "GET /v1/batches/{batch}/releases": OFFICER,
    "POST /v1/batches/{batch}/releases": OWNER,
    "PUT /v1/batches/{batch}/calibration-allowance": OWNER,
    "GET /v1/batches/{batch}/calibration-allowance": {"owner", "features", "auditor"},
    "POST /v1/batches/{batch}/calibrations": PUBLISHER,
    "PUT /v1/batches/{batch}/sums-allowance": OWNER,
    "GET /v1/batches/{batch}/sums-allowance": {"owner", "features", "auditor"},
    "POST /v1/batches/{batch}/sums-of-table": PUBLISHER,
    "POST /v1/batches/{batch}/medians": OWNER,
    "POST /v1/batches/{batch}/rectangles": OWNER,
    "POST /v1/batches/{batch}/rectangles/plan": OWNER,
    "POST /v1/batches/{batch}/linear-models": OWNER,
    "POST /v1/batches/{batch}/linear-models/plan": OWNER,
    "POST /v1/batches/{batch}/sums": OWNER,
    "POST /v1/batches/{batch}/sums/plan": OWNER,
    "PUT /v1/batches/{batch}/features": OWNER,
    "POST /v1/predictors": OWNER,
    "GET /v1/predictors": {"owner", "features", "auditor"},
    "GET /v1/predictors/{predictor}": {"owner", "features", "auditor"},
    "POST /v1/predictors/{predictor}/retire": OWNER,
    "POST /v1/predictors/{predictor}/predict": PUBLISHER,
    "GET /v1/releases": {"owner", "features", "auditor"},
    "GET /v1/releases/{release}": {*APPROVER, "features"},
    "GET /v1/releases/{release}/manifest": PUBLISHER,
    "GET /v1/releases/{release}/message": PUBLISHER,
    "GET /v1/releases/{release}/files/{name}": PUBLISHER,
    "GET /v1/releases/{release}/statement": {*APPROVER, "features"},
    "POST /v1/releases/{release}/receipt": {"features"},
    "GET /v1/answers": {"owner", "features", "auditor"},
    "GET /v1/answers/{answer}": {*APPROVER, "features"},
    "GET /v1/answers/{answer}/document": PUBLISHER,
    "GET /v1/answers/{answer}/files/{name}": PUBLISHER,
    "POST /v1/answers/{answer}/receipt": {"features"},
    "POST /v1/answers/{answer}/approve": APPROVER,
    "POST /v1/answers/{answer}/decline": APPROVER,
    "POST /v1/answers/{answer}/cancel": OWNER,
    "GET /v1/receipts": {"features"},
    "GET /v1/signing-keys": {"owner", "features", "auditor"},
    "POST /v1/releases/{release}/approve": APPROVER,
    "POST /v1/releases/{release}/decline": APPROVER,
    "POST /v1/releases/{release}/cancel": OWNER,
    "GET /v1/audit/events": OFFICER,
    "GET /v1/audit/export": OFFICER,
    "POST /v1/webhooks": OWNER,
    "GET /v1/webhooks": OFFICER,
    "GET /v1/webhooks/{webhook}": OFFICER,
    "DELETE /v1/webhooks/{webhook}": OWNER,
    "GET /v1/webhooks/{webhook}/deliveries": OWNER,
    "POST /v1/webhooks/{webhook}/test": OWNER,
}
TRAINER, BOTH, AUDITOR = {"trainer"}, {"trainer", "auditor"}, {"auditor"}
FEATURES: dict[str, set[str]] = {
    "POST /v1/feature-tables": TRAINER,
    "GET /v1/feature-tables": BOTH,
    "GET /v1/feature-tables/{table}": BOTH,
    "DELETE /v1/feature-tables/{table}": TRAINER,
    "POST /v1/feature-tables/{table}/id-list": TRAINER,
    "POST /v1/messages": TRAINER,
    "GET /v1/messages": BOTH,
    "GET /v1/messages/{release}": BOTH,
    "GET /v1/pinned-keys": BOTH,
    "POST /v1/answers": TRAINER,
    "GET /v1/answers": BOTH,
    "GET /v1/answers/{answer}": BOTH,
    "GET /v1/answers/{answer}/document": BOTH,
    "POST /v1/trainings": TRAINER,
    "GET /v1/trainings": BOTH,
    "GET /v1/trainings/{training}": BOTH,
    "POST /v1/trainings/{training}/cancel": TRAINER,
    "GET /v1/trainings/{training}/events": BOTH,
    "GET /v1/models": BOTH,
    "GET /v1/models/compare": BOTH,
    "GET /v1/models/{model}": BOTH,
    "DELETE /v1/models/{model}": TRAINER,
    "PUT /v1/models/{model}/aliases/{alias}": TRAINER,
    "DELETE /v1/models/{model}/aliases/{alias}": TRAINER,
    "GET /v1/models/{model}/card": BOTH,
    "GET /v1/models/{model}/card.md": BOTH,
    "GET /v1/models/{model}/schema": BOTH,
    "GET /v1/models/{model}/export": TRAINER,
    "POST /v1/models/{model}/predict": TRAINER,
    "POST /v1/models/{model}/calibrations": TRAINER,
    "POST /v1/models/{model}/ask-calibration": TRAINER,
    "GET /v1/audit/events": AUDITOR,
    "GET /v1/audit/export": AUDITOR,
}


def denied_alike(client: TestClient, operation: Operation, real: dict[str, str], status: int = 404) -> None:
    nothing = unlike(real)
    assert nothing.keys() == real.keys()
    assert all(nothing[name] != real[name] for name in real)
    about_real, about_nothing = (list(answers(client, operation, which)) for which in (real, nothing))
    assert about_real == about_nothing, operation.name
    codes = [code for code, _, _ in about_real]
    assert codes[0] == status, (operation.name, about_real)
    assert set(codes) <= {status, 415}, (operation.name, about_real)  # a content type is refused before anything else


# --- labels party ------------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[LabelsParty, dict[str, str]]]:
    """A published release for one publisher, and a webhook."""
    with LabelsParty(tmp_path / "labels-party", worker=False) as party:
        batch = party.sealed_batch(label_table(20), audiences=["features-party"])
        release = party.release(batch)
        table = label_table(20).set_column(1, "x", pa.array(range(20)))
        party.services.companions.features.put(batch, table)
        predictor = made(party, batch, features=[{"name": "x", "range": [0, 20]}])
        table = score_table(label_table(20))
        calibration = charged(party, batch, table, additional_release=True)
        party.services.pipeline.run(calibration)
        owner = party.client("owner")
        asked = {"epsilon": "1", "additional_release": True}
        median = owner.post(f"/v1/batches/{batch}/medians", json=asked).json()["id"]
        party.services.pipeline.run(median)
        asked |= {"features": [{"name": "x", "range": [0, 20]}]}
        model = owner.post(f"/v1/batches/{batch}/linear-models", json=asked).json()["id"]
        asked |= {"threshold": 5, "slice": 2}
        rectangle = owner.post(f"/v1/batches/{batch}/rectangles", json=asked).json()["id"]
        for answer in (model, rectangle):
            party.services.pipeline.run(answer)
        population = owner.get("/v1/populations").json()
        found = (population["populations"] if isinstance(population, dict) else population)[0]["id"]
        assert owner.post("/v1/people", json={"name": "crowd", "lifetime_epsilon": "5"}).status_code == 201
        hook = owner.post("/v1/webhooks", json={"url": "https://example.org/hook"}).json()["id"]
        name = owner.get(f"/v1/releases/{release}").json()["files"][0]["name"]
        yield (
            party,
            {
                "population": found,
                "people": "crowd",
                "batch": batch,
                "release": release,
                "upload": "upl_0123456789abcdef01234567",
                "webhook": hook,
                "name": name,
                "predictor": predictor,
                "calibration": calibration,
                "median": median,
                "rectangle": rectangle,
                "model": model,
                "answer": median,
            },
        )


def test_it_is_said_of_every_operation_of_the_labels_party_who_may_call_it(
    world: tuple[LabelsParty, dict[str, str]],
) -> None:
    document = world[0].client().get("/openapi.json").json()
    assert {o.name for o in operations(document)} == set(LABELS)


def test_roles_that_may_not_call_cannot_tell_what_exists(world: tuple[LabelsParty, dict[str, str]]) -> None:
    party, real = world
    clients = {role: party.client(role) for role in LABELS_ROLES}
    for operation in operations(party.client().get("/openapi.json").json()):
        for role in set(LABELS_ROLES) - LABELS[operation.name]:
            denied_alike(clients[role], operation, {p: real[p] for p in operation.parameters})
            if "population" in operation.parameters:  # also by its name
                denied_alike(clients[role], operation, {"population": "shop"})


def test_a_publisher_cannot_tell_what_exists_for_another(world: tuple[LabelsParty, dict[str, str]]) -> None:
    party, real = world
    rightful, other = party.client("features"), party.client("features", "other-publisher")
    known = 0
    for operation in operations(party.client().get("/openapi.json").json()):
        if "features" in LABELS[operation.name] and operation.parameters:
            about = {p: real[p] for p in operation.parameters}
            named = {"name": about["name"]} if "name" in about else {}
            strange = (
                unlike({p: v for p, v in about.items() if p != "name"}) | named
            )  # the file's name is always the same
            seen = list(answers(other, operation, about))
            assert seen == list(answers(other, operation, strange)), operation.name
            assert {code for code, _, _ in seen} <= {404, 415, 422}, operation.name
            assert next(answers(rightful, operation, strange))[0] in (404, 415, 422), operation.name
            known += next(answers(rightful, operation, about))[0] == 200
    assert known >= 5  # release, statement, manifest, message, file
    assert real["release"] not in other.get("/v1/releases").text
    told = other.get("/v1/answers").text
    assert all(real[kind] not in told for kind in ("calibration", "median", "rectangle", "model"))


def test_without_a_key_of_this_service_every_operation_says_the_same(
    world: tuple[LabelsParty, dict[str, str]], tmp_path: Path
) -> None:
    party, real = world
    with running(tmp_path, Sender()) as api:
        foreign = api.services.apikeys.create("trainer")[1]
    revoked_id, revoked = party.services.apikeys.create("owner", None)
    party.services.apikeys.revoke(revoked_id)
    stranger = party.client()
    said = set()
    for operation in operations(stranger.get("/openapi.json").json()):
        for given in ("", f"Bearer {foreign}", f"Bearer {revoked}", "Basic b3duZXI6", "Bearer"):
            stranger.headers["Authorization"] = given
            denied_alike(stranger, operation, {p: real[p] for p in operation.parameters}, 401)
            said |= {text for _, text, _ in answers(stranger, operation, real)}
    assert len(said) == 1


# --- features party ----------------------------------------------------------------------------------------


@pytest.fixture
def trained(tmp_path: Path) -> Iterator[tuple[Api, dict[str, str]]]:
    sender = Sender()
    with running(tmp_path, sender) as api:
        api.accept(message_files(sender, tmp_path / "sent"))
        table, answer = api.table(), json.loads(signed(sender.key, np.array([1.0]), []))
        assert api.trainer.post("/v1/answers", json=answer).status_code == 201
        model = api.trained(table)
        assert api.trainer.put(f"/v1/models/{model}/aliases/champion").status_code == 204
        training = api.trainer.get("/v1/trainings").json()
        rows = training["trainings"] if isinstance(training, dict) else training
        yield (
            api,
            {
                "table": table,
                "release": "rel_1",
                "answer": "ans_1",
                "training": rows[0]["id"],
                "model": model,
                "alias": "champion",
            },
        )


def test_every_operation_of_the_features_party_says_who_may_call_it(
    trained: tuple[Api, dict[str, str]],
) -> None:
    document = trained[0].trainer.get("/openapi.json").json()
    assert {o.name for o in operations(document)} == set(FEATURES)


def test_roles_that_may_not_call_cannot_tell_what_the_features_party_has(
    trained: tuple[Api, dict[str, str]],
) -> None:
    api, real = trained
    stranger = TestClient(api.app.app, raise_server_exceptions=False, headers={"Authorization": "Bearer lp_none"})
    for operation in operations(api.trainer.get("/openapi.json").json()):
        about = {p: real[p] for p in operation.parameters}
        denied_alike(stranger, operation, about, 401)
        for role, client in (("trainer", api.trainer), ("auditor", api.auditor)):
            if role not in FEATURES[operation.name]:
                denied_alike(client, operation, about)
