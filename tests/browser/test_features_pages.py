"""The features party's pages in Chromium: what came, a training that runs, its model, a prediction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from features_party.storage.tables import trainings
from label_dp.documents.signing import ANSWER_TYPE
from tests.support.browser import Person
from tests.support.features_api import Api, message_files, running
from tests.support.golden_documents import documents
from tests.support.messages import Sender
from tests.support.serving import serving

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def party(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, str]]:
    folder = tmp_path_factory.mktemp("features")
    sender = Sender()
    with running(folder, sender) as api, serving(api.app.app) as base:
        api.accept(message_files(sender, folder / "sent"))
        own = {"batch": "bat_sums", "population": {"id": "pop_sums", "name": "club", "label": "visits", "events": None}}
        signed = sender.key.sign(ANSWER_TYPE, documents(sender.key.public.id)["sums: of both"] | own)
        api.services.answers.accept(signed)
        yield api, base


@pytest.fixture(scope="module")
def model(party: tuple[Api, str]) -> str:
    return party[0].trained(name="first <b>try</b>")


@pytest.mark.parametrize("look", [{}, {"phone": True, "dark": True}], ids=["wide", "phone, dark"])
def test_a_trainer_looks_at_every_page(browser: Any, party: tuple[Api, str], model: str, look: dict[str, bool]) -> None:
    api, base = party
    second = api.trained()
    person = Person(browser, base, **look)
    person.sign_in(api.services.apikeys.create("trainer")[1])
    person.sees("Inbox")
    assert "rel_1" in person.page.locator("main").inner_text()
    person.page.get_by_role("link", name="ans_1").click()
    person.sees("Answer")
    assert person.page.locator("svg.picture").count() == 2
    person.open("/inbox", "Inbox")
    person.page.get_by_role("link", name="rel_1").click()
    person.sees("Message")
    person.open("/tables", "Tables")
    person.page.get_by_role("link", name="ft_").first.click()
    person.sees("Table")
    table = person.page.locator("h1 code").inner_text()
    person.page.get_by_role("link", name="Start a training on it").click()
    assert person.page.get_by_label("Feature table").input_value() == table
    person.open("/trainings", "Trainings")
    person.page.get_by_role("link", name="tr_").first.click()
    person.sees("Training")
    training = person.page.url
    for name, heading in (("ft_", "Table"), ("rel_1", "Message")):
        person.page.get_by_role("link", name=name).click()
        person.sees(heading)
        person.page.goto(training)
    person.page.get_by_role("link", name="Open the model").click()
    person.sees("Model of")
    person.page.get_by_role("link", name="rel_1").click()
    person.sees("Message")
    person.page.go_back()
    person.page.get_by_role("link", name="its training").click()
    assert person.page.url == training
    person.open("/models", "Models")
    for name in (model, second):
        person.page.get_by_label(f"Compare {name}").check()
    person.page.get_by_role("button", name="Compare").click()
    person.sees("side by side")
    person.open(f"/models/{model}/predict", "Predict")
    person.page.get_by_role("button", name="Predict").click()
    assert "Fill in a column" in person.page.get_by_role("alert").inner_text()
    person.sees("Predict")
    person.page.get_by_role("textbox", name="age").fill("41")
    person.page.get_by_role("button", name="Predict").click()
    person.sees("Predict")
    assert person.page.get_by_role("status").inner_text().startswith("revenue: ")
    person.close()


@pytest.mark.parametrize("look", [{}, {"dark": True}, {"phone": True}, {"phone": True, "dark": True}], ids=str)
def test_a_training_is_started_on_a_page(browser: Any, party: tuple[Api, str], look: dict[str, bool]) -> None:
    api, base = party
    api.table()
    person = Person(browser, base, **look)
    page = person.page
    person.sign_in(api.services.apikeys.create("trainer")[1])
    person.open("/trainings", "Trainings")
    page.get_by_role("link", name="Start a training").click()
    person.sees("Start a training")
    page.get_by_label("Learn from rel_1").uncheck()
    page.get_by_text("Mark a message").wait_for()
    assert page.get_by_role("button", name="Start this training").count() == 0
    page.get_by_label("Learn from rel_1").check()
    page.get_by_role("radio", name="linear").check()
    page.get_by_label("Name of the model").fill("of a page")
    page.get_by_text("More choices").click()
    page.get_by_label("Columns to leave out").fill("age, colour")
    page.get_by_text("no column 'colour'").wait_for()
    page.get_by_label("Columns to leave out").fill("age")
    page.get_by_text("--exclude age").wait_for()
    assert "--model linear" in page.get_by_label("Command", exact=True).inner_text()
    assert 'exclude=["age"]' in page.get_by_label("Python", exact=True).inner_text()
    person.sees("Start a training")
    person.picture("started form")
    page.get_by_role("button", name="Start this training").click()
    page.get_by_text("Open the model").wait_for(timeout=60_000)
    person.sees("of a page")
    page.get_by_role("link", name="Start one like it").click()
    assert page.get_by_role("radio", name="linear").is_checked()
    assert page.get_by_label("Columns to leave out").input_value() == "age"
    page.get_by_label("Columns to leave out").fill("age, country")
    page.get_by_text("No column of the table is left").wait_for()
    person.close()


def test_a_training_is_started_without_scripts(browser: Any, party: tuple[Api, str]) -> None:
    api, base = party
    api.table()
    person = Person(browser, base, scripts=False)
    person.sign_in(api.services.apikeys.create("trainer")[1])
    person.open("/trainings/new", "Start a training")
    person.page.get_by_label("Learn from rel_1").uncheck()
    person.page.get_by_label("Name of the model").fill("mine")
    person.page.get_by_role("button", name="Start this training").click()
    assert "Mark a message" in person.page.get_by_role("alert").inner_text()
    person.errors.clear()  # Chromium notes the status 422
    assert person.page.get_by_label("Name of the model").input_value() == "mine"
    person.page.get_by_label("Learn from rel_1").check()
    person.page.get_by_role("radio", name="linear").check()
    person.page.get_by_role("button", name="Show what it will do").click()
    person.sees("Start a training")
    assert "csrf" not in person.page.url
    person.page.get_by_role("button", name="Start this training").click()
    person.sees("mine")
    person.close()


def test_a_training_is_followed_live_to_its_end(browser: Any, party: tuple[Api, str]) -> None:
    api, base = party
    body = {"feature_table": api.table(), "messages": ["rel_1"], "model": "linear"}
    training = api.trainer.post("/v1/trainings", json=body).json()["id"]
    person = Person(browser, base)
    person.sign_in(api.services.apikeys.create("trainer")[1])
    person.page.goto(f"{base}/trainings/{training}")
    # its script reloads the page when the stream says that it has ended
    person.page.get_by_text("Open the model").wait_for(timeout=60_000)
    person.sees("Training")
    person.close()


def test_a_loss_curve_is_drawn_anew_while_its_training_runs(browser: Any, party: tuple[Api, str], model: str) -> None:
    api, base = party
    database, training = api.services.database, "tr_0123456789abcdef0123"

    def losses(*values: float) -> list[dict[str, Any]]:
        return [{"name": "loss", "points": [[10 * i, value] for i, value in enumerate(values, 1)]}]

    def begin(connection: Connection) -> None:
        ended = dict(connection.execute(sa.select(trainings).limit(1)).mappings().one())
        runs = {"id": training, "state": "running", "model": None, "finished": None, "losses": losses(9, 8)}
        connection.execute(sa.insert(trainings).values(ended | runs))

    def change(**values: Any) -> None:
        row = sa.update(trainings).where(trainings.c.id == training)
        database.write("change", lambda c: c.execute(row.values(revision=trainings.c.revision + 1, **values)) and None)

    database.write("begin", begin)
    person = Person(browser, base)
    person.sign_in(api.services.apikeys.create("trainer")[1])
    # what changes right after a picture was taken is drawn too
    with person.page.expect_request(lambda request: request.resource_type == "fetch"):
        person.page.goto(f"{base}/trainings/{training}")
    curve = person.page.locator("#curve svg")
    assert "from 9 to 8" in str(curve.text_content())
    change(losses=losses(9, 8, 5, 3), step="fitting", share=0.5)
    person.page.get_by_text("from 9 to 3").wait_for(state="attached", timeout=30_000)
    person.page.get_by_text("fitting").wait_for(timeout=30_000)
    change(state="cancelled", step="cancelled")
    person.page.locator(".tag.cancelled").wait_for(timeout=30_000)
    person.close()


@pytest.mark.parametrize("look", [{}, {"dark": True}, {"phone": True}, {"phone": True, "dark": True}], ids=str)
def test_an_alias_moves_from_model_to_model(
    browser: Any, party: tuple[Api, str], model: str, look: dict[str, bool]
) -> None:
    api, base = party
    second = api.trained()
    person = Person(browser, base, **look)
    page = person.page
    person.sign_in(api.services.apikeys.create("trainer", name="Eve Trainer")[1])
    for name in (model, second):
        person.open(f"/models/{name}", "Model of")
        page.get_by_label("Alias of this model").fill("champion")
        page.get_by_role("button", name="Set").click()
        assert "no other one" in page.get_by_role("status").inner_text()
        person.sees("champion")
    page.get_by_label("Alias of this model").fill("Champion!")
    page.get_by_role("button", name="Set").click()
    assert "small letters" in page.get_by_role("alert").inner_text()
    assert page.get_by_label("Alias of this model").input_value() == "Champion!"
    person.errors.clear()  # Chromium notes the status 422
    person.open("/models", "Models")
    row = page.get_by_role("row", name=second)
    assert "champion" in row.inner_text()
    assert "champion" not in page.get_by_role("row", name=model).first.inner_text()
    if not look.get("phone"):
        page.get_by_role("button", name="Rows").click()
        assert page.locator('th[aria-sort="ascending"]').inner_text().startswith("Rows")
    person.open("/models/champion/predict", "Predict")
    assert second in page.locator("main").inner_text()
    person.open("/models/champion", "Model of")
    page.get_by_role("button", name="Remove champion").click()
    person.sees("Model of")
    assert page.get_by_role("button", name="Remove champion").count() == 0
    person.close()


def test_an_auditor_reads_and_changes_nothing(browser: Any, party: tuple[Api, str], model: str) -> None:
    api, base = party
    person = Person(browser, base)
    person.sign_in(api.services.apikeys.create("auditor")[1])
    person.open("/audit", "Audit")
    person.page.get_by_role("button", name="Verify now").click()
    person.sees("Verification")
    person.open(f"/models/{model}", "Model of")
    assert person.page.get_by_role("link", name="Predict with it").count() == 0
    person.page.goto(f"{base}/models/{model}/predict")
    assert person.page.locator("h1").inner_text() == "Not found"
    person.close()
