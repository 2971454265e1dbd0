"""Medians over REST, in both clients and on the command line: charged in ε and δ, signed, refused at no charge."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from fastapi.testclient import TestClient

from label_dp.audit.rules import check_rules
from label_dp.companions.kinds.median import Median, VerifiedMedian, open_median
from label_dp.documents.answer import Answer
from label_dp.documents.signing import ANSWER_TYPE, SigningKey, open_envelope
from label_dp.errors import (
    AlreadyReleased,
    AudienceMismatch,
    InvalidEpsilon,
    InvalidInput,
    MalformedAnswer,
    VerificationFailed,
)
from labels_party.client import AsyncLabelsPartyClient, LabelsPartyClient
from labels_party.companions.files import AnswerErrand
from labels_party.companions.kinds.median import MedianWish
from labels_party.files.jobs import look
from tests.integration.test_release_pipeline import Crash, CrashAt
from tests.support.asked import median_wish
from tests.support.labels import LabelsParty
from tests.support.labels_api import is_problem
from tests.support.labels_cli import Run, refused

pytestmark = pytest.mark.extended

N = 2400
TABLE = pa.table({"example_id": [f"click-{i:05d}" for i in range(N)], "label": np.arange(N) % 301})
SLICES = {"epsilon": "1", "delta": "0.0000001"}


@pytest.fixture
def party(tmp_path: Path) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path / "home") as found:
        yield found


def sealed(party: LabelsParty, table: pa.Table = TABLE, **rules: Any) -> str:
    """Id of a sealed batch in a population of its own, with a lifetime δ."""
    body = {
        "name": "shop",
        "label": "revenue",
        "domain": "0:400",
        "lifetime_epsilon": "4",
        "lifetime_delta": "0.000001",
    }
    owner = party.client()
    made = owner.post("/v1/populations", json=body | rules)
    assert made.status_code == 201, made.text
    batch = str(owner.post(f"/v1/populations/{made.json()['id']}/batches", json={"presence": "public"}).json()["id"])
    party.services.intake.add_labels(batch, table, owner=True)
    party.services.sealer.seal(batch, "test")
    return batch


def post(client: TestClient, batch: str, **body: Any) -> httpx.Response:
    return client.post(f"/v1/batches/{batch}/medians", json=body)


def published(client: TestClient, median: str) -> dict[str, Any]:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        state: dict[str, Any] = client.get(f"/v1/answers/{median}").json()
        if state["state"] in ("published", "failed"):
            return state
        time.sleep(0.05)
    raise AssertionError(state)


def fetched(party: LabelsParty, client: TestClient, median: str) -> VerifiedMedian:
    assert published(client, median)["state"] == "published"
    envelope = client.get(f"/v1/answers/{median}/document").content
    return open_median(envelope, party.services.key.public, "features-party")


def events(party: LabelsParty) -> list[Any]:
    return list(party.services.database.read("e", lambda c: list(party.services.audit.scan(c))))


def test_by_slices_it_charges_epsilon_and_delta_and_is_signed(party: LabelsParty) -> None:
    batch = sealed(party)
    asked = post(party.client(), batch, **SLICES)
    assert asked.status_code == 202
    assert asked.headers["location"] == f"/v1/answers/{asked.json()['id']}"
    assert asked.json()["epsilon"] == {"clip": "0", "prior": "0", "randomize": "1", "total": "1", "delta": "0.0000001"}
    reader = party.client("features")
    found = fetched(party, reader, asked.json()["id"])
    assert found.value is not None
    assert 90 <= found.value <= 210  # a third of 0 … 300, and a little for the noise of where thirds end
    assert found.answer.parameters == {"method": "slices"}
    assert (str(found.answer.delta_spent), str(found.answer.delta_lifetime)) == ("0.0000001", "0.000001")
    assert found.answer.mechanism.facts["sliced_on_either_side"] == N // 3
    budget = party.client().get("/v1/populations/shop/budget").json()
    assert (budget["epsilon_spent_at_most"], budget["delta_spent_at_most"]) == ("1", "0.0000001")
    first, again = (reader.get(f"/v1/answers/{asked.json()['id']}/document") for _ in range(2))
    assert first.content == again.content
    charged = [e for e in events(party) if e.kind == "release-charged"]
    assert [(str(e.split.total), e.split.delta_atto) for e in charged] == [("1", 10**11)]
    check_rules(events(party))


def test_by_ranks_it_is_pure_and_needs_no_lifetime_delta(party: LabelsParty) -> None:
    batch = sealed(party, lifetime_delta="0")
    found = fetched(party, party.client(), post(party.client(), batch, epsilon="1").json()["id"])
    assert found.value is not None
    assert 120 <= found.value <= 180
    assert (found.answer.parameters["method"], found.answer.epsilon.delta_atto) == ("ranks", 0)
    is_problem(post(party.client(), batch, **SLICES, additional_release=True), 422, "invalid-epsilon")
    assert party.spent(batch) == "1"


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "slices without delta": ({"epsilon": "1", "method": "slices"}, 422, "invalid-epsilon"),
    "ranks with delta": ({"epsilon": "1", "delta": "0.0000001", "method": "ranks"}, 422, "invalid-epsilon"),
    "too few labels": ({"epsilon": "0.01", "delta": "0.0000001"}, 422, "invalid-input"),
    "more delta than there is": ({"epsilon": "1", "delta": "0.00001"}, 403, "budget-exceeded"),
    "more epsilon than there is": ({"epsilon": "5"}, 403, "budget-exceeded"),
    "no epsilon": ({"epsilon": "0"}, 422, "invalid-epsilon"),
    "NaN": ({"epsilon": "nan"}, 422, "invalid-epsilon"),
    "delta of 1": ({"epsilon": "1", "delta": "1"}, 422, "invalid-epsilon"),
    "negative delta": ({"epsilon": "1", "delta": "-0.1"}, 422, "invalid-epsilon"),
    "tiny epsilon": ({"epsilon": "0.000000001"}, 422, "invalid-epsilon"),
    "huge epsilon": ({"epsilon": "65"}, 422, "invalid-epsilon"),
    "unknown method": ({"epsilon": "1", "method": "mean"}, 422, "invalid-request"),
    "unknown member": ({"epsilon": "1", "quantile": "0.5"}, 422, "invalid-request"),
}


def test_a_refusal_charges_nothing(party: LabelsParty) -> None:
    batch = sealed(party)
    before, owner = [e.body() for e in events(party)], party.client()
    for case, (body, status, code) in REFUSED.items():
        is_problem(post(owner, batch, **body), status, code)
        assert [e.body() for e in events(party)] == before, case
    assert party.spent(batch) == "0"


def test_an_unknown_or_open_batch_is_refused_and_a_second_person_awaited(party: LabelsParty) -> None:
    owner = party.client()
    is_problem(post(owner, "bat_nothing", epsilon="1"), 404, "not-found")
    batch = sealed(party, four_eyes=True)
    assert post(owner, batch, epsilon="1").json()["state"] == "accepted"
    opened = owner.post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"]
    assert post(owner, opened, epsilon="1").status_code == 409
    for role in ("features", "auditor", "ingest"):
        assert post(party.client(role), batch, epsilon="1").status_code in (403, 404)
    assert party.spent(batch) == "0"


def test_a_second_one_is_charged_on_top_and_only_if_asked_for(party: LabelsParty) -> None:
    batch, owner = sealed(party), party.client()
    published(owner, post(owner, batch, epsilon="1").json()["id"])
    is_problem(post(owner, batch, epsilon="1"), 409, "already-released")
    released = owner.post(f"/v1/batches/{batch}/releases", json={"epsilon": "1", "mechanism": "one-bit"})
    is_problem(released, 409, "already-released")
    assert post(owner, batch, **SLICES, additional_release=True).status_code == 202
    assert party.spent(batch) == "2"


def test_a_repeated_call_charges_once(party: LabelsParty) -> None:
    batch, owner = sealed(party), party.client()
    url, headers = f"/v1/batches/{batch}/medians", {"Idempotency-Key": "once"}
    first = owner.post(url, json=SLICES, headers=headers)
    assert owner.post(url, json=SLICES, headers=headers).json() == first.json()
    is_problem(owner.post(url, json=SLICES | {"epsilon": "2"}, headers=headers), 422, "idempotency-conflict")
    assert party.spent(batch) == "1"


def test_degenerate_labels_are_answered(party: LabelsParty) -> None:
    for i, labels in enumerate([[7], [7] * 40, [0, 400] * 20, [0] * 20 + [400]]):
        table = pa.table({"example_id": [f"c{i}-{j:03d}" for j in range(len(labels))], "label": labels})
        batch, owner = sealed(party, table, name=f"shop {i}"), party.client()
        found = fetched(party, owner, post(owner, batch, epsilon="2").json()["id"])
        assert found.value is not None
        assert 0 <= found.value <= 400
        if labels == [7] * 40:
            assert found.value == 7


def test_nothing_found_is_an_answer_and_is_paid_for(party: LabelsParty) -> None:
    spread = pa.table({"example_id": TABLE["example_id"], "label": np.arange(N) * 6000})
    batch, owner = sealed(party, spread, domain=f"0:{N * 6000}"), party.client()
    # enough for the rule that is told beforehand, too few for labels that share no prefix
    answer = post(owner, batch, epsilon="0.22", delta="0.0000001").json()["id"]
    found = fetched(party, owner, answer)
    assert found.answer.result in ({"found": False, "median": None}, {"found": True, "median": str(found.value)})
    assert party.spent(batch) == "0.22"


def test_after_a_crash_between_transactions_it_is_computed_again_free(tmp_path: Path) -> None:
    faults = CrashAt()
    dying = LabelsParty(tmp_path / "home", worker=False, faults=faults)
    batch = sealed(dying)
    _, answer = dying.services.work.ask(dying.services.work.queued("median"), batch, median_wish(**SLICES), "test")
    faults.point = "answer.publish:before-commit"
    with pytest.raises(Crash):
        dying.services.pipeline.run(answer["id"])
    dying.services.database.dispose()  # the process is gone; its worker lock goes with it
    dying.services.pipeline.close()
    with LabelsParty(tmp_path / "home", worker=False) as again:
        again.services.worker.drain()
        assert fetched(again, again.client(), answer["id"]).value is not None
        assert again.spent(batch) == "1"


def test_changed_documents_are_refused(party: LabelsParty) -> None:
    batch, owner = sealed(party), party.client()
    answer = post(owner, batch, **SLICES).json()["id"]
    fetched(party, owner, answer)
    envelope = owner.get(f"/v1/answers/{answer}/document").content
    key, public = party.services.key, party.services.key.public
    with pytest.raises(AudienceMismatch):
        open_median(envelope, public, "somebody-else")
    with pytest.raises(VerificationFailed):
        open_median(envelope, SigningKey.generate().public, "features-party")
    outer = json.loads(envelope)
    payload = base64.b64decode(outer["payload"])
    for change in (b'"median":"', b'"delta_spent":"0.0000001"'):
        at = payload.index(change) + len(change) - 2
        flipped = payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :]
        changed = json.dumps(outer | {"payload": base64.b64encode(flipped).decode()}).encode()
        with pytest.raises(VerificationFailed):
            open_median(changed, public, "features-party")
    document = json.loads(open_envelope(envelope, public, ANSWER_TYPE, max_bytes=1 << 20))
    lies: list[dict[str, Any]] = [
        {"result": {"found": True, "median": "401"}},
        {"result": {"found": True, "median": "1e2"}},
        {"result": {"found": True, "median": "nan"}},
        {"result": {"found": True, "median": 5}},
        {"result": {"found": False, "median": "5"}},
        {"result": {"found": True, "median": None}},
        {"result": {"median": None}},
        {"parameters": {"method": "mean"}},
        {"parameters": {"method": "ranks", "n": 1}},
        {"delta_spent": "0"},
        {"delta_lifetime": "0.00000001"},
    ]
    for lie in lies:
        signed = key.sign(ANSWER_TYPE, document | lie)
        with pytest.raises(MalformedAnswer):
            open_median(signed, public, "features-party")
    assert Answer.model_validate(document).kind == "median"


def test_both_python_clients_ask_wait_and_fetch(party: LabelsParty) -> None:
    batch = sealed(party)
    _, key = party.services.apikeys.create("owner")
    with LabelsPartyClient("http://testserver", key, http=party._clients[0]) as client:
        asked = client.median(batch, "1", delta="0.0000001")
        assert client.wait_answer(asked["id"], 30)["state"] == client.answer(asked["id"])["state"] == "published"
        first = client.answer_document(asked["id"])

    async def talk() -> bytes:
        transport = httpx.ASGITransport(party._clients[0].app)
        async with AsyncLabelsPartyClient(
            "http://testserver", key, http=httpx.AsyncClient(transport=transport, base_url="http://testserver")
        ) as client:
            assert (await client.answer(asked["id"]))["state"] == "published"
            await client.wait_answer(asked["id"])
            more = await client.median(batch, "0.5", additional_release=True)
            assert more["parameters"] == {"method": "ranks"}
            return await client.answer_document(asked["id"])

    assert asyncio.run(talk()) == first


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": "0"},
        {"epsilon": "1", "delta": "2"},
        {"epsilon": "1", "delta": "1e-19"},
        {"epsilon": "1", "method": "x"},
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises((InvalidEpsilon, InvalidInput)):
        median_wish(**options)


# --- on the command line ------------------------------------------------------------------------------------


def arguments(folder: Path, **changes: str | None) -> list[str]:
    file = folder / "labels.csv"
    if not file.exists():
        pyarrow.csv.write_csv(TABLE, str(file))
    options: dict[str, str | None] = {
        "labels": str(file),
        "id-column": "example_id",
        "label-column": "label",
        "domain": "0:400",
        "population": "shop",
        "budget": "3",
        "budget-delta": "0.000001",
        "missing-label": "0",
        "epsilon": "1",
        "delta": "0.0000001",
        "out": str(folder / "median.json"),
    }
    options |= {name.replace("_", "-"): value for name, value in changes.items()}
    return [word for name, value in options.items() if value is not None for word in (f"--{name}", value)]


def test_the_command_seals_charges_and_writes_one_signed_value(run: Run, home: Path, tmp_path: Path) -> None:
    done = run("median", *arguments(tmp_path), "--json").json
    assert 90 <= int(done["median"]) <= 210
    assert (done["epsilon_spent"], done["delta_spent"], done["delta_lifetime"]) == ("1", "0.0000001", "0.000001")
    # the same file again is the same batch: charged on top, if asked for
    refused(run("median", *arguments(tmp_path, out=str(tmp_path / "2.json"))), 1, "--additional-release")
    assert not (tmp_path / "2.json").exists()
    again = run(
        "median", *arguments(tmp_path, out=str(tmp_path / "2.json"), delta=None), "--additional-release", "--json"
    )
    assert (again.json["epsilon_spent"], again.json["delta_spent"]) == ("2", "0.0000001")
    by_id = ["--batch", done["batch"], "--epsilon", "2", "--out", str(tmp_path / "3.json")]
    refused(run("median", *by_id, "--additional-release"), 1, "at most 1 is left")
    shown = run("budget").out
    assert "δ 0.000001" in shown
    assert "0.0000009" in shown
    assert "and δ 0.0000001 to batch" in " ".join(run("audit", "show").out.split())
    copy = tmp_path / "copy.json"
    assert run("answer", done["answer"], "--out", str(copy)).code == 0
    assert copy.read_bytes() == (tmp_path / "median.json").read_bytes()
    assert run("audit", "verify").code == 0


def test_an_interrupted_command_is_taken_up_and_costs_once(tmp_path: Path) -> None:
    """Another δ is another median, but where its domain is so small that slices need none of what was offered."""
    with LabelsParty(tmp_path / "home", worker=False) as party:
        for domain, needed in (("0:400", True), ("0:100", False)):
            batch = sealed(party, name=domain, label=domain, domain=domain)
            first, other = (Median(epsilon="1", delta=delta, method="slices") for delta in ("0.0000001", "0.0000002"))
            kind, looked = party.services.work.queued("median"), look(party.services, batch)
            _, answer = party.services.work.ask(kind, batch, MedianWish.parse(first), "test")

            def errand(asked: Median, kind: Any = kind) -> AnswerErrand:
                return AnswerErrand(tmp_path / "m.json", False, "test", kind, asked)

            assert errand(first).start(party.services, *looked) == answer["id"]
            if needed:
                with pytest.raises(AlreadyReleased):
                    errand(other).start(party.services, *looked)
            else:
                assert errand(other).start(party.services, *looked) == answer["id"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "slices", "delta": None}, ("δ = 0",)),
        ({"epsilon": "0.01"}, ("needs a prefix",)),
        ({"labels": None}, ("--batch",)),
        ({"domain": None}, ("--domain",)),
        ({"batch": "bat_1"}, ("--labels",)),
        ({"budget_delta": "0.5"}, ("lifetime δ",)),
        ({"method": "mean"}, ("method",)),
    ],
)
def test_bad_options_are_sentences(
    changes: dict[str, str | None], words: tuple[str, ...], run: Run, home: Path, tmp_path: Path
) -> None:
    refused(run("median", *arguments(tmp_path, **changes)), 2, *words)
    assert not (tmp_path / "median.json").exists()


def test_without_a_lifetime_delta_slices_are_refused_and_ranks_given(run: Run, home: Path, tmp_path: Path) -> None:
    result = run("median", *arguments(tmp_path, budget_delta=None))
    assert result.code != 0
    assert "no δ budget" in result.err
    done = run("median", *arguments(tmp_path, budget_delta=None, delta=None), "--json")
    assert (done.code, done.json["parameters"]["method"]) == (0, "ranks")
