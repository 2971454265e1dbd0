"""A forger between the parties, without the signing key: nothing he makes of a message is taken.

The long version is `tests/soak/soak_tampering.py`; what a labels party may sign against us is in `test_signed_lies.py`.
"""

from __future__ import annotations

import io
import json
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as generate_ec
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from features_party.bootstrap import Services
from features_party.receive.acceptances import Acceptances
from features_party.receive.uploads import arrange, untar
from label_dp import errors
from label_dp.audit.events import ACCEPTED
from label_dp.documents import bundle, signed
from label_dp.documents.bundle import FOLDER_ENVELOPE
from label_dp.documents.signing import SigningKey, VerifyingKey
from tests.support import tampering as t
from tests.support.features_cli import Shell
from tests.support.messages import Sender, features_party

SEED, FLIPS = 20261121, 600


@pytest.fixture(scope="module")
def whole(sender: Sender, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return t.send(sender, tmp_path_factory.mktemp("sent") / "whole")


@pytest.fixture(scope="module")
def others(sender: Sender, whole: Path) -> dict[str, Path]:
    """All valid, all of one labels party: of the same release (drawn again), of another, of another batch."""
    at = whole.parent
    return {
        "whole": whole,
        "redrawn": t.send(sender, at / "redrawn", 1),
        "release": t.send(sender, at / "release", 2, release="rel_2"),
        "batch": t.send(sender, at / "batch", 3, release="rel_3", batch="bat_2", ids=[f"z{i:04d}" for i in range(60)]),
    }


Attack = Callable[[Path, dict[str, Path], SigningKey], t.Attack]
ATTACKS: dict[str, tuple[Attack, int]] = {
    "a bit of every byte of the manifest": (lambda w, o, k: t.envelope_bits(w, random.Random(SEED)), 3000),
    "flips in the files": (lambda w, o, k: t.file_flips(w, FLIPS, random.Random(SEED)), FLIPS),
    "cuts and holes at every boundary": (lambda w, o, k: t.truncations(w), 200),
    "parts reordered and spliced": (lambda w, o, k: t.splices(o), 300),
    "other keys, types and algorithms": (lambda w, o, k: t.wrong_signatures(w, o["release"], k), 30),
    "the old signature on another document": (lambda w, o, k: t.unsigned_edits(w), 10),
    "what is no file": (lambda w, o, k: t.odd_folders(w, o["release"]), 20),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_is_taken(
    name: str, whole: Path, others: dict[str, Path], sender: Sender, key: VerifyingKey, tmp_path: Path
) -> None:
    attack, least = ATTACKS[name]
    tried, passed = t.survivors(attack(whole, others, sender.key), whole, tmp_path / "copy", key)
    assert passed == []
    assert tried >= least
    assert t.taken(tmp_path / "copy", key), "the untouched message must pass the same way"


# --- the tests see a reader that skips a check ---------------------------------------------------------------


def _no_bytes(*_: Any, **__: Any) -> None:
    """Digests of files are not compared."""


def _no_signature(envelope: bytes, *_: Any, **__: Any) -> bytes:
    import base64

    return base64.b64decode(json.loads(envelope)["payload"])


def _short_digest(path: Path, entry: Any, copy_to: Path | None = None) -> None:
    """Only sizes are compared."""
    if path.stat().st_size != entry.bytes:
        raise errors.DigestMismatch("It has another size.")


PLANTED: dict[str, tuple[Any, str, Any, str]] = {
    "bytes unchecked": (bundle, "check_bytes", _no_bytes, "parts reordered and spliced"),
    "sizes alone": (bundle, "check_bytes", _short_digest, "flips in the files"),
    "signature unchecked": (signed, "open_envelope", _no_signature, "the old signature on another document"),
    "signature unchecked, other keys": (signed, "open_envelope", _no_signature, "other keys, types and algorithms"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_reader_that_skips_a_check_is_caught(
    name: str,
    whole: Path,
    others: dict[str, Path],
    sender: Sender,
    key: VerifyingKey,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, what, skipping, attack = PLANTED[name]
    monkeypatch.setattr(module, what, skipping)
    with_it = ATTACKS[attack][0](whole, others, sender.key)
    assert t.survivors(with_it, whole, tmp_path / "copy", key)[1]


# --- key, audience, replay -------------------------------------------------------------------------------------


def test_keys_of_other_algorithms_are_no_keys(whole: Path, key: VerifyingKey, tmp_path: Path) -> None:
    path = tmp_path / "labels.pub"
    for other in (generate_ec(SECP256R1()), Ed448PrivateKey.generate(), X25519PrivateKey.generate()):
        path.write_bytes(other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        with pytest.raises(errors.InvalidFile):
            VerifyingKey.load(path)
    for text in (
        b"",
        key.pem[:-30],
        key.pem.replace(b"M", b"N", 1),
        key.pem.replace(b"PUBLIC", b"PRIVATE"),
        b"\0" * 99,
    ):
        path.write_bytes(text)
        with pytest.raises(errors.InvalidFile):
            VerifyingKey.load(path)
    assert not t.taken(whole, SigningKey.generate().public)


NOT_US = ["", " ", "features-party ", " features-party", "Features-party", "FEATURES-PARTY", "features\u2010party"]
NOT_US += ["features-party\0", "features-party\n", "features-part\u0443", "features-\u200bparty", "features_party"]
NOT_US += ["\ufefffeatures-party", "features-party\u0301", "*", "features-party,other", "f\uff45atures-party"]


@pytest.mark.parametrize("audience", NOT_US)
def test_a_message_for_somebody_whose_name_looks_like_ours(
    audience: str, whole: Path, sender: Sender, key: VerifyingKey, tmp_path: Path
) -> None:
    assert not t.taken(whole, key, audience)
    if len(audience) >= 1:
        sent = t.send(sender, tmp_path / "sent", audiences=[audience])
        assert not t.taken(sent, key)
        assert t.taken(sent, key, audience)


def _accepted(services: Services) -> int:
    return len(services.database.read("test", lambda c: services.audit.events(c, kind=ACCEPTED)))


def _replays(services: Services, others: dict[str, Path], key: VerifyingKey) -> list[str]:
    """Names of the messages that pass for new ones."""
    fresh = []
    for name, path in others.items():
        try:
            if services.messages.accept(path, key).fresh:
                fresh.append(name)
        except errors.ReplayConflict:
            continue
    return fresh


def test_replays_after_a_restart(
    others: dict[str, Path], key: VerifyingKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in range(3):
        services = features_party(tmp_path / "home")
        first = _replays(services, others, key)
        # the release that was drawn again is refused from the start: one release has one manifest
        assert first == (["whole", "release", "batch"] if start == 0 else [])
        assert _accepted(services) == 3
        with pytest.raises(errors.ReplayConflict):
            services.messages.accept(others["redrawn"], key)
        services.close()
    monkeypatch.setattr(Acceptances, "_record", lambda *_: True)
    monkeypatch.setattr(Acceptances, "known", lambda *_: False)
    services = features_party(tmp_path / "home")
    assert _replays(services, others, key) == list(others), "a store that forgets would be seen"
    services.close()


def test_the_command_refuses_with_a_sentence(whole: Path, sender: Sender, tmp_path: Path) -> None:
    shell, public = Shell(tmp_path), sender.public_key(tmp_path)
    shell.run("verify", whole, "--labels-key", public)
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy"
    for name in t.SLOTS:
        (copy / name).write_bytes((whole / name).read_bytes())
    (copy / t.PARTS[0]).write_bytes(t.flipped((whole / t.PARTS[0]).read_bytes(), 4000))
    assert "changed or cut short" in shell.refused("verify", copy, "--labels-key", public, code=1)
    (copy / FOLDER_ENVELOPE).write_bytes(b"[" * 1_000_000)
    shell.refused("verify", copy, "--labels-key", public, code=1)
    (copy / FOLDER_ENVELOPE).unlink()
    shell.refused("verify", copy, "--labels-key", public, code=2)


# --- names that climb ------------------------------------------------------------------------------------------


def _tar(members: list[tuple[dict[str, Any], bytes]]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for about, data in members:
            info = tarfile.TarInfo()
            for field, value in (about | {"size": len(data)}).items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def _upload(archive: bytes, folder: Path, services: Services) -> bool:
    """As the service takes an uploaded archive."""
    (folder / "message").mkdir(parents=True)
    (folder / "upload.tar").write_bytes(archive)
    try:
        parts = untar(folder / "upload.tar", folder)
        services.messages.accept(arrange(parts, services.pinned, t.ME, folder / "message"))
    except errors.LabelDPError:
        return False
    return True


def test_names_in_an_upload_lead_nowhere(whole: Path, sender: Sender, tmp_path: Path) -> None:
    services = features_party(tmp_path / "home")
    services.pinned.pin(sender.public_key(tmp_path))
    parts = {name: (whole / name).read_bytes() for name in t.SLOTS}
    good = [({"name": name}, data) for name, data in parts.items()]
    for number, (what, about) in enumerate(t.tar_lies()):
        data = b"" if "type" in about else b"escaped"
        for kind, members in (("more", [(about, data), *good]), ("instead", [(about, data), *good[1:]])):
            assert not _upload(_tar(members), tmp_path / "work" / f"{number}-{kind}", services), what
    assert _accepted(services) == 0
    found = [p for p in tmp_path.rglob("*") if "escaped" in p.name]
    assert found == []
    assert not Path("/escaped").exists()
    assert _upload(_tar(good), tmp_path / "work" / "good", services)
    assert _accepted(services) == 1
    services.close()
