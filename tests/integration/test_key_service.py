"""Keys in a PKCS#11 token (SoftHSM): wrapped there, rotated there, lost with it; and none of them in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from label_dp.backup.restoring import RestoreRequest, restore
from label_dp.backup.taking import back_up
from label_dp.errors import InvalidSettings, Unavailable
from label_dp.store.objects.port import DamagedObject
from labels_party.backups import labels_party
from labels_party.bootstrap import bootstrap
from labels_party.labels.pkcs11_keys import TokenKeys
from labels_party.settings import Settings
from tests.support.backups import keys_of
from tests.support.labels import LabelsParty, label_table
from tests.support.tokens import PIN, token

GIVEN = dict[str, str]

pytestmark = pytest.mark.processes  # softhsm2-util makes the tokens


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> list[GIVEN]:
    """All tokens of these tests: the library sees those alone that are there when it is loaded."""
    folder = tmp_path_factory.mktemp("softhsm")
    return [token(folder, f"labels-{number}") for number in range(12)]


@pytest.fixture
def given(fresh: list[GIVEN]) -> GIVEN:
    return fresh.pop()


@pytest.fixture
def keys(given: GIVEN) -> TokenKeys:
    return TokenKeys(given["pkcs11_module"], given["pkcs11_token"], PIN)


def test_what_is_wrapped_opens_in_its_place_alone(keys: TokenKeys) -> None:
    keys.make(1)
    keys.make(1)
    wrapped = keys.wrap(1, b"k" * 32, "bat_1")
    assert keys.unwrap(1, wrapped, "bat_1") == b"k" * 32
    assert keys.wrap(1, b"k" * 32, "bat_1") != wrapped
    keys.make(2)
    for number, sealed, place in (
        (1, wrapped, "bat_2"),
        (2, wrapped, "bat_1"),
        (1, wrapped[:-1] + bytes([wrapped[-1] ^ 1]), "bat_1"),
        (1, wrapped[:20], "bat_1"),
    ):
        with pytest.raises(DamagedObject):
            keys.unwrap(number, sealed, place)
    assert keys.unwrap(1, wrapped, "bat_1") == b"k" * 32  # a refusal ends nothing
    assert keys.forget_before(2) == [1]
    with pytest.raises(Unavailable, match="label-dp-wrapping-1"):
        keys.unwrap(1, wrapped, "bat_1")


def test_no_key_can_be_taken_out(keys: TokenKeys) -> None:
    from pkcs11 import Attribute
    from pkcs11.exceptions import PKCS11Error

    keys.make(1)
    assert keys.secret().derive("x") == keys.secret().derive("x")
    with keys._opened() as session:
        for label in ("label-dp-wrapping-1", "label-dp-digests"):
            with pytest.raises(PKCS11Error):
                session.get_key(label=label)[Attribute.VALUE]


def test_a_party_seals_releases_rotates_and_starts_again(tmp_path: Path, given: GIVEN) -> None:
    with LabelsParty(tmp_path / "home", worker=False, **given) as party:
        batch = party.sealed_batch(label_table(20))
        party.release(batch)
        assert party.services.keys.rotate() == (2, 1)
        key = party.services.keys.of(batch)
        assert not list((party.home / "keys").glob("wrapping-*"))
        assert not party.services.home.secret_path.exists()
        settings, secret = party.services.settings, party.services.secrets.derive("x")
    again = bootstrap(settings)
    try:
        assert again.keys.of(batch) == key
        assert again.secrets.derive("x") == secret
    finally:
        again.close()


def test_a_backup_goes_back_beside_its_token(tmp_path: Path, fresh: list[GIVEN], given: GIVEN) -> None:
    with LabelsParty(tmp_path / "home", worker=False, **given) as party:
        batch = party.sealed_batch(label_table(20))
        settings, key = party.services.settings, party.services.keys.of(batch)
        told = back_up(labels_party(settings=settings), tmp_path / "b.zip")
        assert told["keys"] == ["signing.key"]
        keys = keys_of(party, tmp_path / "keys")
    wanted, there = RestoreRequest(tmp_path / "b.zip", keys, newest=True), {"home": tmp_path / "new"}
    with pytest.raises(Unavailable, match="has no key"):
        restore(labels_party(settings=Settings(**there, **fresh.pop())), wanted)  # type: ignore[arg-type]  # the same
    assert not (tmp_path / "new").exists()
    restore(labels_party(settings=settings.model_copy(update=there)), wanted)
    again = bootstrap(settings.model_copy(update=there))
    try:
        assert again.keys.of(batch) == key
    finally:
        again.close()


def test_another_or_an_emptied_token_is_refused(tmp_path: Path, fresh: list[GIVEN], given: GIVEN) -> None:
    with LabelsParty(tmp_path / "home", worker=False, **given) as party:
        party.sealed_batch(label_table(5))
    other = fresh.pop()
    with pytest.raises(Unavailable, match="has no key"):
        bootstrap(Settings(home=tmp_path / "home", **other))  # type: ignore[arg-type]  # pydantic converts
    TokenKeys(other["pkcs11_module"], other["pkcs11_token"], PIN).make(1)
    TokenKeys(other["pkcs11_module"], other["pkcs11_token"], PIN).secret()
    with pytest.raises(Unavailable, match="not the one this database was made with"):
        bootstrap(Settings(home=tmp_path / "home", **other))  # type: ignore[arg-type]  # pydantic converts


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"pkcs11_pin": "0000"}, "does not answer"),
        ({"pkcs11_token": "nobody"}, "does not answer"),
        ({"pkcs11_module": "/no/such.so"}, "does not answer"),
    ],
)
def test_a_token_that_does_not_answer_is_one_sentence(tmp_path: Path, given: GIVEN, changed: GIVEN, says: str) -> None:
    with pytest.raises(Unavailable, match=says) as refused:
        bootstrap(Settings(home=tmp_path / "home", **(given | changed)))  # type: ignore[arg-type]  # pydantic converts
    assert PIN not in str(refused.value)


def test_settings_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="LABELS_PARTY_PKCS11_PIN"):
        bootstrap(Settings(home=tmp_path / "home", key_service="pkcs11"))
    with LabelsParty(tmp_path / "files", worker=False) as party:
        files = party.settings
    told = {"key_service": "pkcs11", "pkcs11_module": "m", "pkcs11_token": "t", "pkcs11_pin": "p"}
    with pytest.raises(InvalidSettings, match="began with keys in files"):
        bootstrap(Settings(**(files.model_dump() | told)))
