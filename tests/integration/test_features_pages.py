"""The features party's pages: who sees which, changes with a token only, and a form made from a model's columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from label_dp.documents.signing import ANSWER_TYPE
from label_dp.pages import verifier
from tests.support.features_api import Api, message_files, running
from tests.support.golden_documents import documents
from tests.support.messages import Sender
from tests.support.pages import Looker, signed_in

BOTH, TRAINER, AUDITOR = {"trainer", "auditor"}, {"trainer"}, {"auditor"}
PAGES = {
    "/inbox": BOTH,
    "/messages/{release}": BOTH,
    "/answers/{answer}": BOTH,
    "/tables": BOTH,
    "/tables/{table}": BOTH,
    "/trainings": BOTH,
    "/trainings/new": TRAINER,
    "/trainings/{training}": BOTH,
    "/models": BOTH,
    "/models/{model}": BOTH,
    "/models/compare?model={model}&model={second}": BOTH,
    "/models/{model}/predict": TRAINER,
    "/audit": AUDITOR,
    "/audit/export": AUDITOR,
}
CHANGES = {
    "/trainings": TRAINER,
    "/trainings/{training}/cancel": TRAINER,
    "/models/{model}/predict": TRAINER,
    "/models/{model}/aliases": TRAINER,
    "/models/{model}/aliases/champion/remove": TRAINER,
    "/audit/verify": AUDITOR,
    "/audit/compare": AUDITOR,
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder: Path = tmp_path_factory.mktemp("pages")
    sender = Sender()
    with running(folder, sender) as found:
        found.accept(message_files(sender, folder / "sent"))
        own = {"batch": "bat_sums", "population": {"id": "pop_sums", "name": "club", "label": "visits", "events": None}}
        found.services.answers.accept(
            sender.key.sign(ANSWER_TYPE, documents(sender.key.public.id)["sums: of both"] | own)
        )
        yield found


@pytest.fixture(scope="module")
def names(api: Api) -> dict[str, str]:
    model, second = api.trained(name="<i>first</i>"), api.trained()
    training = api.trainer.get(f"/v1/models?limit=1&training={model.replace('m_', 'tr_')}").json()[0]["training"]
    answer = api.trainer.get("/v1/answers").json()[0]["answer"]
    table = api.trainer.get("/v1/feature-tables").json()[0]["id"]
    return {
        "model": model,
        "second": second,
        "training": training,
        "answer": answer,
        "release": "rel_1",
        "table": table,
    }


@pytest.mark.parametrize("role", sorted(BOTH))
def test_a_page_is_there_for_its_roles_alone(api: Api, names: dict[str, str], role: str) -> None:
    person = signed_in(api.client(role))
    unknown = {name: f"{value[:3]}unknown" for name, value in names.items()}
    for path, roles in PAGES.items():
        assert person.get(path.format(**names)).status_code == (200 if role in roles else 404), path
        if "{" in path:
            assert person.get(path.format(**unknown)).status_code == 404, path
    token = person.token("/inbox")
    for path, roles in CHANGES.items():
        assert person.post(path.format(**names), None).status_code == (422 if role in roles else 404), path
        if role not in roles:
            assert person.post(path.format(**names), token).status_code == 404, path


def test_nobody_sees_a_page_without_a_session(api: Api, names: dict[str, str]) -> None:
    stranger = Looker(api.client("trainer"))
    for path in [*PAGES, "/trainings/{training}/events"]:
        assert stranger.get(path.format(**names)).headers["location"].partition("?")[0].endswith("/sign-in"), path


def test_the_verifier_needs_no_session(api: Api) -> None:
    answer = Looker(api.client("trainer")).get("/verify")
    assert (answer.status_code, answer.content) == (200, verifier.verifier())
    assert answer.headers["content-security-policy"] == verifier.POLICY


def test_the_page_of_an_answer_shows_its_groups(api: Api, names: dict[str, str]) -> None:
    person = signed_in(api.client("trainer"))
    link = re.search(f'href="./(answers/[^"]+)"><code>{names["answer"]}', person.get("/inbox").text)
    assert link is not None
    page = person.get(f"/{link.group(1)}").text
    assert page.count('class="picture"') == 2
    assert "By country and device" in page
    assert re.search(">DE</th><th [^>]+>app</th><td [^>]+>5</td>", page)


def test_a_key_of_the_other_party_opens_nothing(api: Api) -> None:
    stranger = Looker(api.client("trainer"))
    assert stranger.sign_in("lp_" + "x" * 43).status_code == 401
    stranger.client.cookies.set("lp_session", "x" * 43)
    assert stranger.get("/inbox").status_code == 303


def test_a_prediction_is_that_of_the_call(api: Api, names: dict[str, str]) -> None:
    person = signed_in(api.client("trainer"))
    path = f"/models/{names['model']}/predict"
    page = person.get(path).text
    fields = dict(re.findall(r'<label for="(column-\d+)">([^<]+)<', page))
    columns = {c["name"]: c for c in api.trainer.get(f"/v1/models/{names['model']}/schema").json()["columns"]}
    assert set(fields.values()) == set(columns)
    row = {name: 41.5 if c["kind"] == "number" else c["categories"][0] for name, c in columns.items()}
    told = api.trainer.post(f"/v1/models/{names['model']}/predict", json={"rows": [row]}).json()["predictions"][0]
    answer = person.post(path, person.token(path), **{field: str(row[name]) for field, name in fields.items()})
    shown = re.search(r"<strong>[^:]+: ([−\d.,]+)<", answer.text)
    assert shown is not None
    assert float(shown.group(1).replace("−", "-").replace(",", "")) == pytest.approx(told, rel=1e-3)


def test_a_cell_that_is_no_number_is_refused_by_its_column(api: Api, names: dict[str, str]) -> None:
    person = signed_in(api.client("trainer"))
    path = f"/models/{names['model']}/predict"
    number = next(
        field
        for field, name in re.findall(r'<label for="(column-\d+)">([^<]+)<', person.get(path).text)
        if re.search(f'id="{field}"[^>]*inputmode="decimal"', person.get(path).text)
    )
    answer = person.post(path, person.token(path), **{number: "many"})
    assert answer.status_code == 422
    assert "takes a number, or nothing" in answer.text


def test_what_has_ended_is_not_cancelled(api: Api, names: dict[str, str]) -> None:
    person = signed_in(api.client("trainer"))
    path = f"/trainings/{names['training']}"
    page = person.get(path).text
    assert "Cancel this training" not in page
    assert "&lt;i&gt;first" in page
    assert "<span data-step></span>" in page  # the state says that it is done
    answer = person.post(f"{path}/cancel", person.token(path))
    assert answer.status_code == 409
    assert "there is nothing to cancel" in answer.text


def test_the_audit_pages_verify_and_compare(api: Api) -> None:
    person = signed_in(api.client("auditor"))
    token, export = person.token("/audit"), person.get("/audit/export").content
    assert "events hold" in person.post("/audit/verify", token).text
    sent = {"export": ("a.json", export, "application/json")}
    answer = person.client.post("/audit/compare", data={"csrf": token}, files=sent)
    assert "agree with the export of this party" in answer.text
    assert "message accepted" in person.get("/audit").text


def test_a_list_tells_models_apart(api: Api, names: dict[str, str]) -> None:
    row = next(row for row in api.trainer.get("/v1/models").json() if row["id"] == names["model"])
    (epsilon,) = row["summary"]["epsilon"]
    assert row["summary"]["label"] == "revenue"
    page = signed_in(api.client("auditor")).get("/models").text
    assert f"{epsilon['epsilon_per_example']} of {epsilon['name']}" in page
    assert 'data-label="Variance explained"' in page


def test_a_prediction_says_what_became_of_empty_fields(api: Api, names: dict[str, str]) -> None:
    person, path = signed_in(api.client("trainer")), f"/models/{names['model']}/predict"
    page = person.get(path).text
    mean = api.trainer.get(f"/v1/models/{names['model']}").json()["card"]["report"]["corrected_mean"]
    shown = re.search(r"learned from is ([−\d.,]+)\.<", page)
    assert shown is not None
    assert float(shown.group(1).replace("−", "-")) == pytest.approx(mean, rel=1e-3)
    number = next(f for f in re.findall(r'name="(column-\d+)"', page) if re.search(f'id="{f}"[^>]*inputmode', page))
    answer = person.post(path, person.token(path), **{number: "41"}).text
    assert "Left empty: country; each number counts as its mean" in answer


@pytest.mark.parametrize(("value", "status"), [("twelve", 422), ("1e999", 422), ("nan", 422), ("", 200)])
def test_a_form_that_cannot_be_read_keeps_what_was_filled_in(
    api: Api, names: dict[str, str], value: str, status: int
) -> None:
    """And a form that says nothing predicts nothing: no model has seen such a row."""
    person, path = signed_in(api.client("trainer")), f"/models/{names['model']}/predict"
    page = person.get(path).text
    number = next(f for f in re.findall(r'name="(column-\d+)"', page) if re.search(f'id="{f}"[^>]*inputmode', page))
    shown = person.post(path, person.token(path), **{number: value})
    assert shown.status_code == status
    assert '<div class="wrong"' in shown.text
    assert re.search(f'name="{number}" value="{value}"', shown.text)
