"""`rehearse`: a made-up message that every verifier tells from a real one, and that no audit store counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from deploy.verify_standalone.message import verify_message
from deploy.verify_standalone.refusal import RefusedError
from features_party.receive.pinned import PinnedKeys
from label_dp.documents.bundle import verify
from label_dp.documents.manifest import Manifest
from label_dp.documents.rehearsal import MADE_UP, Rehearsal
from label_dp.documents.signing import MANIFEST_TYPE, REHEARSAL_TYPE, SigningKey, VerifyingKey
from label_dp.errors import MalformedManifest, SignatureInvalid, VerificationFailed
from tests.support.features_cli import Shell
from tests.support.messages import Sender, one_bit, world

pytestmark = pytest.mark.extended

KEY = ("--labels-key", "rehearsal.pub")
TABLE = ("--features", "features.parquet", "--id-column", "id")
DOMAINS = {"numbers": "0:10", "classes": "books,garden,toys", "conversions": "binary", "listed ends": "-3:3:0.5"}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    pq.write_table(world(400, seed=1).table("id"), tmp_path / "features.parquet")
    return Shell(tmp_path)


def made(shell: Shell, domain: str = "0:10", epsilon: str = "3", *more: str) -> dict[str, Any]:
    found: dict[str, Any] = shell.json("rehearse", *TABLE[:2], "--domain", domain, "--epsilon", epsilon, *more)
    return found


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_a_rehearsal_is_joined_and_trained_on_and_no_audit_store_counts_it(shell: Shell, domain: str) -> None:
    found = made(shell, domain)
    assert (found["rows"], found["id_column"], found["epsilon_spent"]) == (400, "id", "0")
    assert shell.json("verify", "rehearsal.parquet", *KEY)["rehearsal"] is True
    joined = shell.json("join", "--message", "rehearsal.parquet", *KEY, *TABLE, "--out", "joined.parquet")
    assert joined["counts"]["matched"] == 400
    ask = ("--message", "rehearsal.parquet", *KEY, *TABLE, "--model", "trees", "--out", "model")
    card = shell.json("train", *ask)
    assert card["epsilon"] == []
    assert card["messages"][0]["rehearsal"] is True
    assert "rehearsal" in card["notes"][0]
    shell.run("predict", "--model", "model", *TABLE, "--out", "scores.parquet")
    assert shell.json("budget") == []
    assert [event["kind"] for event in shell.json("audit", "show")] == []
    assert shell.json("train", *ask, "--force")["report"]["matched"] == 400  # its copy is found again


def test_both_verifiers_tell_it_from_a_message(shell: Shell) -> None:
    made(shell)
    path, key = shell.folder / "rehearsal.parquet", VerifyingKey.load(shell.folder / "rehearsal.pub")
    with pytest.raises(SignatureInvalid, match="This is a rehearsal with made-up labels"):
        verify(path, key, None)
    with pytest.raises(RefusedError, match="this is a rehearsal"):
        verify_message(path, key.key, key.id, None)
    assert isinstance(verify(path, key, None, rehearsals=True).manifest, Rehearsal)
    assert "REHEARSAL" in verify_message(path, key.key, key.id, None, rehearsal=True)[0]


def test_a_message_is_no_rehearsal(tmp_path: Path) -> None:
    sender, w = Sender(), world(50)
    sender.write(tmp_path / "m.parquet", w.ids, w.labels, one_bit())
    assert not isinstance(verify(tmp_path / "m.parquet", sender.key.public, None, rehearsals=True).manifest, Rehearsal)
    public = sender.key.public
    with pytest.raises(RefusedError):
        verify_message(tmp_path / "m.parquet", public.key, public.id, None, rehearsal=True)


EDITS: dict[str, dict[str, Any]] = {
    "of the format of messages": {"format": "label-dp-message/1"},
    "that does not say so": {"randomness": "AES"},
    "of another batch": {"batch": "bat_1"},
    "with a prior": {"prior": {"source": "uniform", "method": None, "cells": None, "release": None}},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("kind", [REHEARSAL_TYPE, MANIFEST_TYPE])
def test_nobody_takes_what_is_between_the_two(shell: Shell, edit: dict[str, Any], kind: str) -> None:
    """Whoever signs it, under either type."""
    made(shell)
    path, key = shell.folder / "rehearsal.parquet", SigningKey.generate()
    document = verify(path, VerifyingKey.load(shell.folder / "rehearsal.pub"), None, rehearsals=True)
    changed = document.manifest.document() | {"key_id": key.public.id} | edit
    (shell.folder / "rehearsal.parquet.dsse.json").write_bytes(key.sign(kind, changed))
    if kind == MANIFEST_TYPE and "format" in edit:
        return  # that is a message, of a key that nobody pinned
    rehearsals = kind == REHEARSAL_TYPE
    with pytest.raises(VerificationFailed):
        verify(path, key.public, None, rehearsals=rehearsals)
    with pytest.raises(RefusedError):
        verify_message(path, key.public.key, key.public.id, None, rehearsal=rehearsals)


def test_a_labels_party_cannot_hide_a_message_in_a_rehearsal(shell: Shell) -> None:
    """A key that is pinned signs what is accounted for, or nothing."""
    made(shell)
    shell.run("pin-key", "rehearsal.pub")
    assert "throw-away keys" in shell.refused("verify", "rehearsal.parquet", *KEY, code=1)
    ask = ("train", "--message", "rehearsal.parquet", *KEY, *TABLE, "--out", "model")
    assert "throw-away keys" in shell.refused(*ask, code=1)


def test_rehearsals_and_messages_do_not_mix(shell: Shell) -> None:
    made(shell)
    key, w = SigningKey.generate(), world(400, seed=1)
    manifest = verify(shell.folder / "rehearsal.parquet", VerifyingKey.load(shell.folder / "rehearsal.pub"), None,
                      rehearsals=True).manifest  # fmt: skip
    one = manifest.document() | {"key_id": key.public.id}
    (shell.folder / "rehearsal.parquet.dsse.json").write_bytes(key.sign(REHEARSAL_TYPE, one))
    (shell.folder / "rehearsal.pub").write_bytes(key.public.pem)
    Sender(key).write(shell.folder / "m.parquet", w.ids, w.labels, one_bit(epsilon=3.0), epsilon="3")
    ask = ("--message", "rehearsal.parquet", "--message", "m.parquet", *KEY, *TABLE, "--out", "model")
    assert "not both" in shell.refused("train", *ask, code=2)
    assert shell.json("audit", "show") == []


def test_what_is_wrong_is_a_sentence(shell: Shell) -> None:
    made(shell)
    assert "--labels-key" in shell.refused("verify", "rehearsal.parquet", code=2)
    again = ("rehearse", *TABLE[:2], "--domain", "0:10", "--epsilon", "1")
    assert "exists already" in shell.refused(*again, code=2)
    assert "ε" in shell.refused(*again[:-1], "0", "--force", code=2)
    assert "'nobody'" in shell.refused(*again, "--force", "--id-column", "nobody", code=2)


def test_one_s_own_key_is_not_pinned(shell: Shell) -> None:
    public = json.loads(shell.run("keygen", "--json").stdout)["public_key"]
    assert "our own key" in shell.refused("pin-key", public, code=2)
    assert PinnedKeys(shell.folder / "home" / "keys" / "pinned").list() == []


def test_a_manifest_says_what_it_is() -> None:
    assert Manifest.FORMAT != Rehearsal.FORMAT
    assert Manifest.TYPE != Rehearsal.TYPE
    with pytest.raises(MalformedManifest):
        Manifest.from_payload(b'{"format":"label-dp-rehearsal/1"}')
    assert "no ε is spent" in MADE_UP
