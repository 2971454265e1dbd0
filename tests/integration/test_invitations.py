"""Invitations: two files and two codes, after which the features party pulls without an address or a key of its own."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from label_dp import errors
from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.invitation import Invitation
from label_dp.documents.signing import SigningKey
from tests.support.commands import command
from tests.support.features_api import running
from tests.support.features_cli import Shell
from tests.support.labels import LabelsParty, label_table
from tests.support.labels_api import is_problem
from tests.support.messages import Sender
from tests.support.serving import serving

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module")
def advertiser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LabelsParty, str, str]]:
    """A labels party with a published release, and its URL."""
    with LabelsParty(tmp_path_factory.mktemp("labels") / "home", worker=False) as party:
        release = party.release(party.sealed_batch(label_table(60)))
        with serving(party.client().app) as url:
            yield party, url, release


def labels_cli(party: LabelsParty, folder: Path, *arguments: object, code: int = 0) -> Any:
    home = {"LABELS_PARTY_HOME": str(party.services.home.path)}
    done = command("labels-party", *arguments, "--json", folder=folder, environment=home)
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout) if code == 0 else done.stderr


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def met(shell: Shell, advertiser: tuple[LabelsParty, str, str], file: str = "answer.json") -> dict[str, str]:
    """The facts of the features party's answer to an invitation."""
    party, url, _ = advertiser
    code = labels_cli(
        party, shell.folder, "invite", "--url", url + "/", "--name", "Shop", "--out", "shop.json", "--force"
    )["code"]
    heard = code.lower().replace("-", " ")
    found: dict[str, str] = shell.json(
        "accept-invitation", "shop.json", "--name", "Magazine", "--out", file, "--code", heard
    )
    return found


def test_after_an_invitation_a_pull_needs_no_address_and_no_key(
    shell: Shell, advertiser: tuple[LabelsParty, str, str]
) -> None:
    party, url, release = advertiser
    shell.env["FEATURES_PARTY_LABELS_API_KEY"] = "lp_of-another-labels-party"
    pull = ("pull", "--release", release, "--out", "message.parquet")
    assert "No invitation names a labels party; say with --url" in shell.run(*pull, code=2).stderr
    answer = met(shell, advertiser)
    assert (answer["name"], answer["url"], answer["origin"]) == ("Shop", url, "invitation, its code compared")
    shell.run(*pull, code=1)  # our key is not known there yet
    known = labels_cli(party, shell.folder, "accept-invitation", "answer.json", "--code", answer["code"])
    assert (known["name"], known["audience"]) == ("Magazine", "features-party")
    said = shell.run(*pull).stdout
    assert "1 accepted and signed" in said or "receipt" in said
    assert (shell.folder / "message.parquet").is_file()
    (state,) = [s for s in party.services.receipts.state("features-party") if s["key_id"] == known["receipt_key_id"]]
    assert state["last"] == 1
    # again: the same key on both sides, and nothing is made twice
    again = met(shell, advertiser, "again.json")
    assert labels_cli(party, shell.folder, "accept-invitation", "again.json", "--code", again["code"]) == known
    rows = [key for key in party.services.apikeys.list() if key["name"] == "Magazine"]
    assert [(key["id"], key["role"], key["audience"]) for key in rows] == [
        (known["api_key_id"], "features", "features-party")
    ]
    party.services.apikeys.revoke(known["api_key_id"])
    assert "has ended" in labels_cli(
        party, shell.folder, "accept-invitation", "again.json", "--code", again["code"], code=2
    )


def test_no_file_that_is_sent_holds_the_key_which_its_owner_alone_reads(
    shell: Shell, advertiser: tuple[LabelsParty, str, str]
) -> None:
    met(shell, advertiser)
    (path,) = (shell.folder / "home" / "keys").glob("labels-*.key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = path.read_text().strip()
    sent = [
        base64.b64decode(json.loads((shell.folder / name).read_bytes())["payload"])
        for name in ("shop.json", "answer.json")
    ]
    assert [secret.encode() in data or secret.removeprefix("lp_").encode() in data for data in sent] == [False, False]


def test_another_code_or_none_changes_nothing(shell: Shell, advertiser: tuple[LabelsParty, str, str]) -> None:
    party, url, _ = advertiser
    labels_cli(party, shell.folder, "invite", "--url", url, "--name", "Shop", "--out", "shop.json")
    accept = ("accept-invitation", "shop.json", "--name", "Magazine", "--out", "answer.json")
    assert "as the other party read it" in shell.refused(*accept, code=2)
    assert "does not belong to this file" in shell.refused(*accept, "--code", "AAAA-BBBB-CCCC-DDDD", code=2)
    assert not (shell.folder / "answer.json").exists()
    assert not (shell.folder / "home").exists()


def test_an_audience_that_has_a_key_is_not_given_to_somebody_else(
    shell: Shell, advertiser: tuple[LabelsParty, str, str]
) -> None:
    party = advertiser[0]
    party.services.receipts.register("taken", SigningKey.generate().public, "test")
    shell.env["FEATURES_PARTY_NAME"] = "taken"
    accept = ("accept-invitation", "answer.json", "--code", met(shell, advertiser)["code"])
    assert "reads all its messages" in labels_cli(party, shell.folder, *accept, code=2)
    assert [key for key in party.services.apikeys.list() if key["audience"] == "taken"] == []
    assert labels_cli(party, shell.folder, *accept, "--another-key")["audience"] == "taken"


def test_an_answer_to_somebody_else_is_refused(
    shell: Shell, advertiser: tuple[LabelsParty, str, str], tmp_path: Path
) -> None:
    code = met(shell, advertiser)["code"]
    with LabelsParty(tmp_path / "other", worker=False) as other:
        said = labels_cli(other, shell.folder, "accept-invitation", "answer.json", "--code", code, code=2)
    assert "another labels party" in said
    assert "is from a labels party" in labels_cli(
        advertiser[0], shell.folder, "accept-invitation", "shop.json", "--code", code, code=2
    )


def test_the_service_sends_the_invitations_key_to_its_url_alone(
    tmp_path: Path, advertiser: tuple[LabelsParty, str, str]
) -> None:
    party, url, release = advertiser
    with running(tmp_path, Sender()) as api:
        body = {"url": url, "release": release}
        is_problem(api.trainer.post("/v1/messages", json=body), 422, "invalid-input")
        digest = api.services.pinned.api_key_digest(url + "/")
        party.services.apikeys.register(digest, "features", "features-party", name="Service")
        api.services.pinned.trust(party.services.key.public, "Shop", url=url)
        found = api.trainer.post("/v1/messages", json=body)
        assert found.status_code == 201, found.text
        is_problem(api.trainer.post("/v1/messages", json=body | {"url": "http://127.0.0.1:9"}), 422, "invalid-input")


# --- the document -----------------------------------------------------------------------------------------


def invitation(key: SigningKey, **members: str) -> Invitation:
    of_labels = {"party": "labels", "name": "Shop", "url": "https://labels.example", "created": "2026-11-27"}
    return Invitation.of(key, **(of_labels | members))


def test_the_code_is_of_everything_that_is_signed(tmp_path: Path) -> None:
    key = SigningKey.generate()
    codes = {
        invitation(key, **members).code
        for members in ({}, {"name": "Shop 2"}, {"url": "https://labels.example:444"}, {"created": "2026-11-28"})
    }
    codes.add(invitation(SigningKey.generate()).code)
    assert len(codes) == 5
    one = invitation(key)
    (tmp_path / "a.json").write_bytes(one.sign(key))
    assert Invitation.read(tmp_path / "a.json", "labels") == one
    golden = Invitation.of(
        SigningKey.load(_seeded(tmp_path)), party="labels", name="Shop", url="https://x", created="2026-11-27"
    )
    assert golden.code == "T4LJ-RFC2-WKVV-62Z4"


def _seeded(folder: Path) -> Path:
    (folder / "seed.key").write_bytes(SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32)))).pem)
    return folder / "seed.key"


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"name": "Shop\u200b"}, errors.MalformedInvitation),
        ({"url": "HTTPS://labels.example"}, errors.MalformedInvitation),
        ({"url": None}, errors.MalformedInvitation),
        ({"audience": "us"}, errors.MalformedInvitation),
        ({"extra": "x"}, errors.MalformedInvitation),
        ({"format": "label-dp-invitation/2"}, errors.UnsupportedVersion),
        ({"key": base64.b64encode(bytes(31)).decode()}, errors.MalformedInvitation),
    ],
)
def test_a_changed_member_is_refused_even_under_a_good_signature(
    tmp_path: Path, changed: dict[str, Any], kind: type[Exception]
) -> None:
    key = SigningKey.generate()
    payload = canonical_bytes(invitation(key).document() | changed)
    (tmp_path / "x.json").write_bytes(key.envelope(Invitation.TYPE, payload))
    with pytest.raises(kind):
        Invitation.read(tmp_path / "x.json", "labels")


def test_another_partys_signature_is_refused(tmp_path: Path) -> None:
    ours, theirs = SigningKey.generate(), SigningKey.generate()
    (tmp_path / "x.json").write_bytes(theirs.envelope(Invitation.TYPE, invitation(ours).payload()))
    with pytest.raises(errors.SignatureInvalid):
        Invitation.read(tmp_path / "x.json", "labels")
    envelope = json.loads(invitation(ours).sign(ours))
    payload = base64.b64decode(envelope["payload"]).replace(b"Shop", b"Shap")
    (tmp_path / "x.json").write_text(json.dumps(envelope | {"payload": base64.b64encode(payload).decode()}))
    with pytest.raises((errors.SignatureInvalid, errors.MalformedInvitation)):
        Invitation.read(tmp_path / "x.json", "labels")
