"""Objects in a folder and in a store alike; what a store may answer; what is tried again."""

from __future__ import annotations

import errno
import hashlib
import hmac
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from obstore import exceptions
from obstore.store import LocalStore

from label_dp.errors import InvalidSettings, Unavailable
from label_dp.store.objects import bucket as requests
from label_dp.store.objects import store as copies
from label_dp.store.objects.address import Address
from label_dp.store.objects.bucket import Bucket
from label_dp.store.objects.folder import FolderObjects
from label_dp.store.objects.port import DamagedObject, Objects, StoreRefused
from label_dp.store.objects.store import StoreObjects

KEY = "bat_1/labels-1.parquet"


class Failing:
    """Store in a folder, whose first calls of some kind fail."""

    def __init__(self, folder: Path, name: str = "", *errors: Exception) -> None:
        self.name, self.errors, self.calls = name, list(errors), 0
        self.real = LocalStore(folder, mkdir=True)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        if name != self.name:
            return found

        def called(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.errors:
                raise self.errors.pop(0)
            return found(*arguments, **options)

        return called


def amazon(reason: str) -> exceptions.BaseError:
    """Error as obstore words it: `reason` is a status, and perhaps a code."""
    status, _, code = reason.partition(" ")
    kind = {"403": exceptions.PermissionDeniedError, "": exceptions.GenericError}
    body = f"<Error><Code>{code}</Code><Key>secret</Key></Error>" if code else ""
    said = f"Server returned non-2xx status code: {status} Words: {body}" if status else "error sending request"
    return kind.get(status, exceptions.GenericError)(f"Error performing PUT http://h/b/secret in 1ms - {said}")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LONGEST_PAUSE", 0.001)


def store(tmp_path: Path, system: Any = None, key: bytes = b"k") -> StoreObjects:
    for name in ("remote/bat_1", "spill"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    found = Bucket(system or LocalStore(tmp_path), "remote")
    return StoreObjects(found, tmp_path / "spill", lambda: hmac.new(key, digestmod=hashlib.sha256))


@pytest.fixture(params=["folder", "store"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    return FolderObjects(tmp_path / "local") if request.param == "folder" else store(tmp_path)


def put(objects: Objects, data: bytes, key: str = KEY) -> None:
    with objects.writing(key) as file:
        file.write(data)


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 100])
def test_what_was_put_is_read(objects: Objects, data: bytes) -> None:
    put(objects, data)
    assert bytes(objects.mapped(KEY)) == data
    with objects.reading(KEY) as source:
        assert source.read() == data
        source.seek(len(data) // 2)
        assert source.read() == data[len(data) // 2 :]
    assert [stored.key for stored in objects.listed("bat_1/")] == [KEY]
    assert objects.listed("bat_") == objects.listed("bat_2/") == []
    objects.delete(KEY)
    objects.delete(KEY)
    assert objects.listed("") == []
    with pytest.raises(FileNotFoundError):
        objects.mapped(KEY)


def test_a_block_that_fails_puts_nothing(objects: Objects) -> None:
    def half() -> None:
        with objects.writing(KEY) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert objects.listed("") == []


def test_an_object_changed_cut_or_in_anothers_place_is_damaged(tmp_path: Path) -> None:
    objects, path = store(tmp_path), tmp_path / "remote" / KEY
    put(objects, b"something")
    whole = path.read_bytes()
    other = "bat_1/labels-2.parquet"
    (tmp_path / "remote" / other).write_bytes(whole)
    for key, data in ((KEY, whole[:-1]), (KEY, b""), (KEY, b"S" + whole[1:]), (other, whole)):
        (tmp_path / "remote" / key).write_bytes(data)
        with pytest.raises(DamagedObject):
            objects.mapped(key)
    path.write_bytes(whole)
    assert bytes(objects.mapped(KEY)) == b"something"
    with pytest.raises(DamagedObject):
        store(tmp_path, key=b"another").mapped(KEY)


def test_a_copy_is_kept_for_a_while_and_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = Failing(tmp_path, "head")
    objects = store(tmp_path, system)
    put(objects, b"something")
    assert bytes(objects.mapped(KEY)) == bytes(objects.mapped(KEY)) == b"something"
    assert (system.calls, list((tmp_path / "spill").iterdir())) == (1, [])
    monkeypatch.setattr(copies, "KEPT_SECONDS", -1.0)
    objects.mapped(KEY)
    assert system.calls == 2
    monkeypatch.setattr(copies, "KEPT_SECONDS", 600.0)
    monkeypatch.setattr(copies, "KEPT_BYTES", 10)
    put(objects, b"anything", "bat_1/2.run")
    for key in (KEY, "bat_1/2.run", "bat_1/2.run", KEY):
        objects.mapped(key)
    assert system.calls == 4, "the one used longest ago made room"


@pytest.mark.parametrize(
    "reason", ["", "503 SlowDown", "503", "400 ExpiredToken", "403 AccessDenied", "404 NoSuchBucket"]
)
def test_a_failure_that_passes_is_tried_again(reason: str, tmp_path: Path) -> None:
    system = Failing(tmp_path, "put", *[amazon(reason)] * (requests.TRIES - 1))
    put(store(tmp_path, system), b"something")
    assert system.calls == requests.TRIES
    with pytest.raises(Unavailable) as lasting:
        put(store(tmp_path, Failing(tmp_path, "put", *[amazon(reason)] * requests.TRIES)), b"something")
    assert not isinstance(lasting.value, StoreRefused)
    assert "secret" not in lasting.value.detail


@pytest.mark.parametrize("reason", ["507", "403 QuotaExceeded", "400 InvalidRequest"])
def test_a_refusal_that_may_depend_on_the_bytes_is_not(reason: str, tmp_path: Path) -> None:
    system = Failing(tmp_path, "put", amazon(reason))
    with pytest.raises(StoreRefused) as refused:
        put(store(tmp_path, system), b"something")
    assert system.calls == 1
    assert "secret" not in refused.value.detail


def test_a_full_disk_is_the_disks(tmp_path: Path) -> None:
    class Full(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(errno.ENOSPC, "no space")

    objects = store(tmp_path)
    put(objects, b"something")
    with pytest.raises(OSError, match="no space"):
        objects.bucket.fetch(KEY, Full())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("s3://b", Address("b", "")),
        ("s3://b//p/q/?region=eu", Address("b", "p/q", "eu")),
        ("s3://b/p?endpoint_override=h%3A9&scheme=http", Address("b", "p", None, "h:9", "http")),
        ("s3://b/p?endpoint_override=http%3A%2F%2Fh%3A9%2F", Address("b", "p", None, "h:9", "http")),
        ("gs://b/p/q", Address("b", "p/q", maker="gs")),
        ("az://c", Address("c", "", maker="az")),
    ],
)
def test_addresses(text: str, wanted: Address) -> None:
    assert Address.parse(text, "SETTING") == wanted


@pytest.mark.parametrize("change", [str.upper, lambda text: text.replace("s3:", "gs:"), lambda text: text + "#x"])
def test_what_is_no_address(change: Callable[[str], str]) -> None:
    with pytest.raises(InvalidSettings, match="SETTING"):
        Address.parse(change("s3://b/p?region=x"), "SETTING")
