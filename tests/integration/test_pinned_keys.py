"""Pinned keys: whose each is, since when, from where and until when; and what an end of trust refuses."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from features_party.bootstrap import Services, bootstrap
from features_party.settings import Settings
from label_dp import errors
from label_dp.documents.signing import SigningKey
from tests.support.features_api import Api, running
from tests.support.features_cli import Shell
from tests.support.messages import Sender
from tests.support.pages import signed_in

NOW = datetime(2024, 1, 31, 12, 0, 0, tzinfo=UTC)  # the day on which the sender's documents are made
IDS, LABELS = ["a", "b", "c", "d"], np.arange(4, dtype=np.float64)


class Later:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Later:
    return Later()


@pytest.fixture
def services(tmp_path: Path, clock: Later) -> Iterator[Services]:
    found = bootstrap(Settings(home=tmp_path / "home"), clock=clock)
    yield found
    found.close()


def message(sender: Sender, folder: Path, name: str, created: str = "2024-01-31") -> Path:
    def dated(document: dict[str, object]) -> None:
        document["created"] = created

    path = folder / "sent" / f"{name}.parquet"
    path.parent.mkdir(exist_ok=True)
    sender.write(path, IDS, LABELS, release=name, batch=f"bat_{name}", edit=dated)
    return path


def test_a_pin_says_whose_since_when_and_from_where(services: Services, tmp_path: Path, clock: Later) -> None:
    path = Sender().public_key(tmp_path)
    services.pinned.pin(path, "Shop", "30", "by mail, compared by phone")
    clock.now += timedelta(days=1)
    services.pinned.pin(path)  # again: what is noted stays
    services.pinned.pin(path, "The shop")
    (row,) = services.pinned.listed()
    assert (row["name"], row["pinned"], row["by"]) == ("The shop", "2024-01-31T12:00:00Z", "cli")
    assert (row["origin"], row["expires"], row["state"]) == ("by mail, compared by phone", "2024-03-01", "pinned")
    clock.now += timedelta(days=31)
    assert services.pinned.listed()[0]["state"] == "expired"


def test_pins_of_an_earlier_version_stay_trusted(services: Services, tmp_path: Path) -> None:
    sender = Sender()
    services.pinned.folder.joinpath("0123.pub").write_bytes(sender.key.public.pem)
    assert services.messages.accept(message(sender, tmp_path, "rel_1")).fresh
    (row,) = services.pinned.listed()
    assert (row["state"], row["name"], row["pinned"], row["expires"]) == ("pinned", None, None, None)


@pytest.mark.parametrize("end", ["expires", "revoked"])
def test_after_its_end_a_key_brings_nothing_new(services: Services, tmp_path: Path, clock: Later, end: str) -> None:
    sender = Sender()
    pin = services.pinned.pin(sender.public_key(tmp_path), expires="2024-02-01" if end == "expires" else None)
    first = message(sender, tmp_path, "rel_1")
    assert services.messages.accept(first).fresh
    clock.now += timedelta(days=2)
    if end == "revoked":
        services.pinned.revoke(pin.key.id)
    assert not services.messages.accept(first).fresh  # what was accepted stays
    with pytest.raises(errors.SignatureInvalid, match="nothing new"):
        services.messages.accept(message(sender, tmp_path, "rel_2"))  # an old date is easily signed
    with pytest.raises(errors.SignatureInvalid, match=r"signs for nothing after 2024-02"):
        services.messages.verify(message(sender, tmp_path, "rel_3", created="2024-02-03"))


def test_a_revoked_key_is_not_pinned_again(services: Services, tmp_path: Path) -> None:
    path = Sender().public_key(tmp_path)
    services.pinned.revoke(services.pinned.pin(path).key.id)
    with pytest.raises(errors.InvalidInput, match="revoked on 2024-01-31"):
        services.pinned.pin(path)
    with pytest.raises(errors.NotFound):
        services.pinned.revoke(SigningKey.generate().public.id)


@pytest.mark.parametrize("notes", [b"{", b"[]", b"{}", b'{"key_id": "ed25519:0"}'])
def test_notes_that_cannot_be_read_are_no_trust(services: Services, tmp_path: Path, notes: bytes) -> None:
    services.pinned.pin(Sender().public_key(tmp_path))
    next(services.pinned.folder.glob("*.json")).write_bytes(notes)
    with pytest.raises(errors.InvalidFile, match="does not say"):
        services.pinned.list()


@pytest.mark.parametrize("expires", ["2024-01-30", "soon", "0"])
def test_an_end_that_is_none_is_refused(services: Services, tmp_path: Path, expires: str) -> None:
    with pytest.raises(errors.InvalidInput):
        services.pinned.pin(Sender().public_key(tmp_path), expires=expires)
    assert services.pinned.listed() == []


def test_commands(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    Sender().public_key(tmp_path)
    pinned = shell.json("pin-key", "labels-signing.pub", "--name", "Shop", "--origin", "by mail")
    assert (pinned["name"], pinned["origin"]) == ("Shop", "by mail")
    assert "Shop" in shell.run("pinned", "list").stdout
    shell.run("pinned", "revoke", pinned["key_id"])
    assert [row["state"] for row in shell.json("pinned", "list")] == ["revoked"]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running(tmp_path, Sender()) as found:
        found.services.pinned.pin(tmp_path / "labels-signing.pub", "Shop <b>1</b>")
        yield found


def test_the_list_over_rest_and_on_the_page(api: Api) -> None:
    for role in ("trainer", "auditor"):
        (row,) = api.client(role).get("/v1/pinned-keys").json()
        assert (row["name"], row["state"], row["origin"]) == ("Shop <b>1</b>", "pinned", "file labels-signing.pub")
        page = signed_in(api.client(role)).get("/inbox").text
        assert "Shop &lt;b&gt;1&lt;/b&gt;" in page
        assert "file labels-signing.pub" in page
