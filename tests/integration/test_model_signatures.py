"""A model is loaded where its signer is known: this party's own key, or the one that is set. Nothing else is parsed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from features_party.models.folder import load_model
from label_dp.documents.canonical import digest
from label_dp.documents.model_statement import ModelStatement
from label_dp.documents.signing import SigningKey, VerifyingKey
from tests.support.features_api import WORLD, message_files
from tests.support.features_cli import Shell
from tests.support.messages import Sender

SENDER = Sender()
FILES = ("--features", "features.parquet", "--id-column", "click_id")
SIGNED = ("card.json", "card.md", "model.json")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A publisher with a model of one message."""
    found = Shell(tmp_path)
    found.run("pin-key", SENDER.public_key(found.folder))
    message_files(SENDER, found.folder / "sent")
    pq.write_table(WORLD.table(), found.folder / "features.parquet")
    found.run("train", "--message", "sent/m.parquet", *FILES, "--model", "linear", "--out", "model")
    return found


def predicting(shell: Shell, code: int = 0) -> str:
    ask = ("predict", "--model", "model", *FILES, "--out", "p.parquet")
    if code:
        return shell.refused(*ask, code=code)
    return shell.run(*ask, "--force").stderr


def stranger(shell: Shell) -> Shell:
    """Another features party in the same folder."""
    other = Shell(shell.folder)
    other.env["FEATURES_PARTY_HOME"] = str(shell.folder / "other")
    other.run("keygen")
    return other


def test_the_statement_names_messages_digests_and_epsilon(shell: Shell) -> None:
    told, card = shell.json("models", "verify", "model"), json.loads((shell.folder / "model/card.json").read_text())
    (message,) = card["messages"]
    assert told["files"] == {name: digest((shell.folder / "model" / name).read_bytes()) for name in SIGNED}
    assert [(of["id"], of["digest"]) for of in told["sources"]] == [(message["release"], message["manifest_digest"])]
    assert told["sources"][0]["epsilon"] == message["epsilon"]
    assert [of["epsilon_per_example"] for of in told["epsilon"]] == [card["epsilon"][0]["epsilon_per_example"]]
    key = VerifyingKey.load(shell.folder / "home/keys/signing.pub")
    envelope = (shell.folder / "model/model.dsse.json").read_bytes()
    assert ModelStatement.opened(envelope, key)[0].document() == told
    said = shell.run("models", "verify", "model").stdout
    assert key.id in said
    assert message["manifest_digest"] in said


@pytest.mark.parametrize("name", SIGNED)
def test_a_changed_file_is_refused_before_it_is_parsed(shell: Shell, name: str) -> None:
    path = shell.folder / "model" / name
    path.write_bytes(path.read_bytes() + b" ")
    assert f"'{name}' is not the file that was signed" in predicting(shell, code=1)


def exchanged(shell: Shell) -> None:
    """Another whole model with a card of its own, as anybody can make who may write the folder."""
    forged = shell.folder / "model"
    model = json.loads((forged / "model.json").read_text())
    model["mean"] = 0.0
    (forged / "model.json").write_text(json.dumps(model))
    card = json.loads((forged / "card.json").read_text())
    card["model_sha256"] = digest((forged / "model.json").read_bytes())
    (forged / "card.json").write_text(json.dumps(card))


def by_themselves(shell: Shell) -> None:
    exchanged(shell)
    stranger(shell).run("models", "sign", "model")


def unsigned(shell: Shell) -> None:
    exchanged(shell)
    (shell.folder / "model/model.dsse.json").unlink()


def other_type(shell: Shell) -> None:
    """Our own signature, of bytes that are no statement of a model."""
    path = shell.folder / "model/model.dsse.json"
    key, statement = SigningKey.load(shell.folder / "home/keys/signing.key"), _statement(path)
    path.write_bytes(key.sign("application/vnd.label-dp.receipt+json", statement))


def smaller(shell: Shell) -> None:
    """Signed by us, yet another ε than the card's."""
    path = shell.folder / "model/model.dsse.json"
    key, statement = SigningKey.load(shell.folder / "home/keys/signing.key"), _statement(path)
    statement["epsilon"][0]["epsilon_per_example"] = "0.1"
    path.write_bytes(key.sign(ModelStatement.TYPE, statement))


def _statement(path: Path) -> Any:
    return ModelStatement.opened(path.read_bytes(), VerifyingKey.load(path.parents[1] / "home/keys/signing.pub"))[
        0
    ].document()


ATTACKS = {
    "its 'card.json' is not the file that was signed": exchanged,
    "is signed with the key": by_themselves,
    "is not signed": unsigned,
    "is not of type": other_type,
    "something else than its card": smaller,
}


@pytest.mark.parametrize("said", ATTACKS)
def test_a_folder_that_others_wrote_is_loaded_by_nothing(shell: Shell, said: str) -> None:
    attack: Callable[[Shell], None] = ATTACKS[said]
    attack(shell)
    load_model(shell.folder / "model", None)  # a model in every other respect
    said = said.removeprefix("its ")
    assert said in predicting(shell, code=1)
    for command in ("verify", "show", "export"):
        more = ("--format", "onnx", "--out", "m.onnx") if command == "export" else ()
        assert said in shell.refused("models", command, "model", *more, code=1)
    assert said in shell.refused("report", "--model", "model", "--out", "r.html", code=1)


def test_a_model_of_another_party_is_taken_over_in_two_ways(shell: Shell) -> None:
    other, key = stranger(shell), shell.folder / "home/keys/signing.pub"
    assert "FEATURES_PARTY_MODEL_KEY" in predicting(other, code=1)
    other.env["FEATURES_PARTY_MODEL_KEY"] = str(key)
    predicting(other)
    del other.env["FEATURES_PARTY_MODEL_KEY"]
    wrong = other.folder / "other/keys/signing.pub"
    assert "is signed with the key" in other.refused("models", "verify", "model", "--key", wrong, code=1)
    before = other.json("models", "verify", "model", "--key", key)
    after = other.json("models", "sign", "model")
    assert after == before | {"key_id": VerifyingKey.load(wrong).id}
    predicting(other)
    assert "is signed with the key" in predicting(shell, code=1)
