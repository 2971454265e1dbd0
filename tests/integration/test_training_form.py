"""The page that starts a training: as the call does, keeping what was filled in, and with code that does the same."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from features_party.pages.trainings import CORRECTIONS, LEARNERS, LOSSES
from label_dp.schemas.training import Learning
from tests.support.features_api import Api, message_files, running
from tests.support.features_cli import Shell
from tests.support.messages import Sender
from tests.support.pages import Looker, signed_in

FORM = "/trainings/new"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder: Path = tmp_path_factory.mktemp("form")
    sender = Sender()
    with running(folder, sender) as party:
        party.accept(message_files(sender, folder / "sent"))
        party.table()
        yield party


@pytest.fixture
def person(api: Api) -> Looker:
    return signed_in(api.client("trainer"))


def mark(page: str) -> str:
    return str(re.findall(r'name="(message-[0-9a-f]{64})"', page)[0])


def token(page: str) -> str:
    return str(re.findall(r'name="csrf" value="(\w+)" formmethod', page)[0])


def code(page: str) -> list[str]:
    return [html.unescape(block) for block in re.findall(r"<pre[^>]*><code>(.*?)</code>", page, re.DOTALL)]


def test_the_choices_are_those_of_the_call() -> None:
    fields = Learning.model_fields
    assert tuple(LEARNERS) == get_args(fields["model"].annotation)
    assert next(iter(LEARNERS)) == fields["model"].default
    assert (*LOSSES,) == get_args(get_args(fields["loss"].annotation)[0])
    assert tuple(CORRECTIONS) == get_args(fields["correction"].annotation)


def test_a_form_starts_the_training_of_the_call(api: Api, person: Looker) -> None:
    page = person.get(FORM).text
    table = api.trainer.get("/v1/feature-tables").json()[0]["id"]
    sent = {"feature_table": table, "model": "linear", "name": "of a page", "exclude": "age", mark(page): "on"}
    answer = person.post("/trainings", token(page), **sent)
    assert answer.status_code == 303, answer.text
    training = answer.headers["location"].partition("trainings/")[2].partition("?")[0]
    assert "waits for its turn" in person.get(f"/trainings/{training}?done=queued").text
    ended = api.finished(training)
    assert (ended["state"], ended["name"]) == ("succeeded", "of a page")
    body = {"feature_table": table, "messages": ["rel_1"], "model": "linear", "exclude": ["age"]}
    called = api.trainer.post("/v1/trainings", json=body).json()["request"]
    assert ended["request"] | {"messages": ["rel_1"]} == called


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"exclude": "age, colour"}, "no column &#39;colour&#39;"),
        ({"feature_table": "ft_gone"}, "no feature table &#39;ft_gone&#39;"),
        ({"model": "oracle"}, "model"),
        ({"": ""}, "Mark a message"),
    ],
)
def test_a_refusal_keeps_what_was_filled_in(person: Looker, change: dict[str, str], sentence: str) -> None:
    page = person.get(FORM).text
    table = re.findall(r'<option value="(ft_\w+)"', page)[0]
    sent = {"feature_table": table, "model": "trees", "name": "mine", "categorical": "age", mark(page): "on"} | change
    if "" in sent:
        del sent[""], sent[mark(page)]
    answer = person.post("/trainings", token(page), **sent)
    assert answer.status_code in (404, 422)
    assert 'role="alert">The training did not start. ' in answer.text
    assert sentence in answer.text
    assert 'name="name" type="text" value="mine"' in answer.text
    assert 'name="categorical" type="text" value="age"' in answer.text
    assert len(re.findall('type="checkbox"[^>]* checked', answer.text)) == (mark(page) in sent)
    # and from there it can be sent again
    assert token(answer.text)


def test_the_address_keeps_the_choices(person: Looker) -> None:
    page = person.get(FORM).text
    shown = person.get(f"{FORM}?{mark(page)}=on&model=trees&loss=absolute&name=x").text
    assert re.search('value="trees" checked', shown)
    assert re.search('value="absolute" selected', shown)
    assert "--loss absolute" in code(shown)[0]


@pytest.mark.extended
def test_the_command_and_the_python_train_the_same_model(
    api: Api, person: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = person.get(FORM).text
    shown = person.get(f"{FORM}?{mark(page)}=on&model=linear&exclude=age").text
    command, python = code(shown)
    shell = Shell(api.services.settings.home.parent)
    shell.folder = api.services.settings.home
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:2] == ["features-party", "train"]
    card = shell.json(*words[1:])
    assert [feature["name"] for feature in card["features"]] == ["country"]
    pytest.importorskip("sklearn")
    pytest.importorskip("pandas")
    monkeypatch.chdir(shell.folder)
    names: dict[str, Any] = {}
    exec(python, names)
    assert names["model"].card_["report"]["rows"] == card["report"]["rows"] == 400
    assert list(names["model"].feature_names_in_) == ["country"]
    assert len(api.trainer.get("/v1/messages").json()) == 1  # accounted for once
