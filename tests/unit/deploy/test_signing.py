"""The signed list of a version: what is here is as it was signed, or a sentence says what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import deploy.signing.__main__ as signing
from deploy.images.engine import Failed
from deploy.signing.__main__ import differences, schemas, sources
from label_dp.documents.manifest import Manifest
from label_dp.documents.signing import SigningKey
from label_dp.errors import InvalidFile, SignatureInvalid

KEY = SigningKey.generate()
IDS = {"image:label-dp/labels-party": "sha256:" + "1" * 64, "image:label-dp/features-party": "sha256:" + "2" * 64}


def test_what_was_signed_verifies(tmp_path: Path) -> None:
    assert KEY.public.id in signing.sign(KEY, tmp_path, with_images=False)
    assert "as they were signed" in signing.verify(KEY.public, tmp_path, with_images=False)
    written = json.loads((tmp_path / "label-dp-message.schema.json").read_text(encoding="utf-8"))
    assert set(written["properties"]) == set(Manifest.model_json_schema()["properties"])


def test_schemas_and_locks_are_parts() -> None:
    assert {f"schema:{name}" for name in schemas()} < set(sources())
    assert {"file:labels-party.txt", "file:features-party.txt", "file:FORMAT.md"} < set(sources())
    assert all(value.startswith("sha256:") and len(value) == 71 for value in sources().values())


def test_another_key_or_a_changed_byte_is_refused(tmp_path: Path) -> None:
    signing.sign(KEY, tmp_path, with_images=False)
    with pytest.raises(SignatureInvalid):
        signing.verify(SigningKey.generate().public, tmp_path, with_images=False)
    path = tmp_path / signing.LIST
    data = json.loads(path.read_bytes())
    signature = data["signatures"][0]["sig"]
    data["signatures"][0]["sig"] = ("A" if signature[0] != "A" else "B") + signature[1:]
    path.write_text(json.dumps(data, separators=(",", ":"), sort_keys=True), encoding="utf-8")
    with pytest.raises(SignatureInvalid):
        signing.verify(KEY.public, tmp_path, with_images=False)
    with pytest.raises(InvalidFile, match="cannot be read"):
        signing.verify(KEY.public, tmp_path / "nowhere", with_images=False)


def test_a_changed_part_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "images", lambda _engine: IDS)
    signing.sign(KEY, tmp_path, with_images=True)
    assert signing.verify(KEY.public, tmp_path, with_images=True)
    assert "2 images were not looked at" in signing.verify(KEY.public, tmp_path, with_images=False)
    monkeypatch.setattr(signing, "images", lambda _engine: IDS | {"image:label-dp/labels-party": "sha256:" + "3" * 64})
    with pytest.raises(Failed, match=r"^image:label-dp/labels-party is sha256:3+ here; signed was sha256:1+\.$"):
        signing.verify(KEY.public, tmp_path, with_images=True)


def test_what_is_on_one_side_only_is_named() -> None:
    assert differences({"a": "1", "b": "2"}, {"b": "2", "c": "3"}) == [
        "a was signed and is not here.",
        "c is here and was not signed.",
    ]


def test_the_command_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> int:
        monkeypatch.setattr("sys.argv", ["signing", *words])
        try:
            signing.main()
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    folder = ("--folder", str(tmp_path / "dist"))
    assert run("keygen", "--key", str(tmp_path / "version.key")) == 0
    assert run("sign", "--key", str(tmp_path / "version.key"), *folder) == 0
    assert run("verify", "--key", str(tmp_path / "version.pub"), *folder) == 0
    assert run("keygen", "--key", str(tmp_path / "version.key")) != 0  # a key is never overwritten
    assert run("verify", "--key", str(tmp_path / "none.pub"), *folder) != 0
    assert "error: " in capsys.readouterr().err
