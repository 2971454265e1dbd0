"""A backup is of one moment and whole; a restore brings all of it back, on either engine, or leaves nothing."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from label_dp.backup import sealed_keys
from label_dp.backup.port import Party, key_files
from label_dp.backup.restoring import RestoreRequest, restore
from label_dp.backup.taking import INCOMING
from label_dp.errors import Conflict, InvalidFile, InvalidInput, LabelDPError, SignatureInvalid, Unavailable
from labels_party.backups import labels_party
from labels_party.settings import Settings
from labels_party.storage.files import Home
from tests.support.backups import brought_back, exported, keys_of, taken
from tests.support.labels import LabelsParty, label_table

PASSPHRASE = "correct horse battery staple"


def nothing_left(home: Path) -> bool:
    return not home.exists() and not list(home.parent.glob(".restoring-*"))


@pytest.fixture(autouse=True)
def _quick_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes guessing slow makes tests slow."""
    monkeypatch.setattr(sealed_keys, "WORK", 1 << 4)


@pytest.fixture
def backed(party: LabelsParty, tmp_path: Path) -> tuple[Path, Path, str]:
    """A backup with a release in it, a copy of the keys, and the batch."""
    batch = party.sealed_batch(label_table(40))
    party.release(batch, "1")
    taken(party, tmp_path / "b.zip")
    return tmp_path / "b.zip", keys_of(party, tmp_path / "keys"), batch


def test_a_restored_party_goes_on(party_on: LabelsParty, tmp_path: Path) -> None:
    batch = party_on.sealed_batch(label_table(40))
    release = party_on.release(batch, "1")
    before = party_on.bundle(release).envelope()
    told = taken(party_on, tmp_path / "b.zip")
    keys, newest = keys_of(party_on, tmp_path / "keys"), exported(party_on, tmp_path / "own.json")
    assert told["keys"] == ["signing.key", "secret.key", "wrapping-1.key"]
    found = brought_back(tmp_path / "b.zip", tmp_path / "again", keys, newest)
    assert found["verified"]["events"] == told["events"]
    assert [comparison["agrees"] for comparison in found["against"]] == [True]
    with LabelsParty(tmp_path / "again") as again:
        assert again.spent(batch) == "1"
        assert again.bundle(release).envelope() == before
        again.release(batch, "0.5", additional_release=True)
        assert again.spent(batch) == "1.5"


def test_a_party_moves_to_the_other_engine_and_back(party: LabelsParty, tmp_path: Path, postgres_url: str) -> None:
    """Every row is the same there, and the database refuses what it refused before."""
    batch = party.sealed_batch(label_table(40))
    party.release(batch, "1")
    taken(party, tmp_path / "1.zip", passphrase=PASSPHRASE)
    moved = Settings(home=tmp_path / "moved", database_url=postgres_url)  # type: ignore[arg-type]  # pydantic converts
    restore(labels_party(settings=moved), RestoreRequest(tmp_path / "1.zip", passphrase=PASSPHRASE, newest=True))
    with LabelsParty(tmp_path / "moved", database_url=postgres_url, worker=False) as there:
        assert there.services.database.dialect == "postgresql"
        there.release(batch, "0.5", additional_release=True)
        with pytest.raises(LabelDPError):
            there.services.database.write("w", lambda c: c.execute(sa.text("DELETE FROM audit_events")) and None)
        taken(there, tmp_path / "2.zip", passphrase=PASSPHRASE)
    back = Settings(home=tmp_path / "back")
    restore(labels_party(settings=back), RestoreRequest(tmp_path / "2.zip", passphrase=PASSPHRASE, newest=True))
    with LabelsParty(tmp_path / "back", worker=False) as here:
        assert here.spent(batch) == "1.5"
        here.release(batch, "0.25", additional_release=True)


def test_the_same_rows_come_back(party_on: LabelsParty, tmp_path: Path) -> None:
    party_on.release(party_on.sealed_batch(label_table(40)), "1")
    first, second = tmp_path / "1.zip", tmp_path / "2.zip"
    taken(party_on, first)
    brought_back(first, tmp_path / "again", keys_of(party_on, tmp_path / "keys"))
    with LabelsParty(tmp_path / "again", worker=False) as again:
        taken(again, second)
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as two:
        for name in one.namelist():
            if name != "manifest.dsse.json":
                assert one.read(name) == two.read(name), name


def test_no_private_key_is_in_it_unless_a_passphrase_keeps_it(party: LabelsParty, tmp_path: Path) -> None:
    party.sealed_batch(label_table(10))
    keys = {path.name: path.read_bytes() for path in (party.home / "keys").glob("*.key")}
    for name, passphrase in (("bare.zip", None), ("kept.zip", PASSPHRASE)):
        taken(party, tmp_path / name, passphrase=passphrase)
        with zipfile.ZipFile(tmp_path / name) as found:
            whole = b"".join(found.read(member) for member in found.namelist())
            assert ("keys.sealed" in found.namelist()) == (passphrase is not None)
        assert not any(key in whole for key in keys.values())
    for wrong in ("a passphrase that is another", None):
        settings = Settings(home=tmp_path / "again")
        with pytest.raises((InvalidFile, InvalidInput)):
            restore(
                labels_party(settings=settings), RestoreRequest(tmp_path / "kept.zip", passphrase=wrong, newest=True)
            )
        assert nothing_left(tmp_path / "again")
    assert (tmp_path / "kept.zip").stat().st_mode & 0o077 == 0


def rewritten(backup: Path, change: Callable[[str, bytes], bytes | None], more: dict[str, bytes] | None = None) -> None:
    with zipfile.ZipFile(backup) as found:
        members = {name: change(name, found.read(name)) for name in found.namelist()}
    with zipfile.ZipFile(backup, "w") as out:
        for name, data in {**members, **(more or {})}.items():
            if data is not None:
                out.writestr(name, data)


CHANGES: dict[str, Callable[[str, bytes], bytes | None]] = {
    "a row": lambda name, data: data.replace(b"sealed", b"Sealed") if name == "database/batches.jsonl" else data,
    "a member less": lambda name, data: None if name == "database/audit_events.jsonl" else data,
    "labels": lambda name, data: data[:-1] + bytes([data[-1] ^ 1]) if name.startswith("home/labels/") else data,
    "the manifest": lambda name, data: data.replace(b"a", b"b", 1) if name == "manifest.dsse.json" else data,
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_backup_is_refused(what: str, backed: tuple[Path, Path, str], tmp_path: Path) -> None:
    backup, keys, _ = backed
    rewritten(backup, CHANGES[what])
    with pytest.raises(LabelDPError):
        brought_back(backup, tmp_path / "again", keys)
    assert nothing_left(tmp_path / "again")


def test_members_that_nobody_signed_are_refused(backed: tuple[Path, Path, str], tmp_path: Path) -> None:
    backup, keys, _ = backed
    rewritten(backup, lambda _, data: data, {"home/../../evil": b"x"})
    with pytest.raises(InvalidFile, match="other members"):
        brought_back(backup, tmp_path / "again", keys)


def beside(folder: Path) -> Party:
    return labels_party(settings=Settings(home=folder / "again"))


def member(info: zipfile.ZipInfo, flags: int = 0, version: int = 20) -> bytes:
    """A ZIP of one empty member whose header says so."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(info, b"")
    data = bytearray(out.getvalue())
    local, central = data.index(b"PK\3\4"), data.index(b"PK\1\2")
    data[local + 4 : local + 8] = data[central + 6 : central + 10] = struct.pack("<HH", version, flags)
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        member(zipfile.ZipInfo("manifest.dsse.json"), flags=1),  # encrypted
        member(zipfile.ZipInfo("manifest.dsse.json"), version=99),
        member(zipfile.ZipInfo("manifest.dsse.json"), flags=0x800).replace(b"manifest", b"\xffanifest"),
    ],
    ids=["encrypted", "newer", "no text"],
)
def test_a_file_of_another_kind_is_refused_in_a_sentence(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "b.zip").write_bytes(data)
    with pytest.raises(InvalidFile, match="no backup"):
        restore(beside(tmp_path), RestoreRequest(tmp_path / "b.zip", passphrase=PASSPHRASE, newest=True))


@pytest.mark.parametrize("name", ["keys.sealed", "manifest.dsse.json"])
@pytest.mark.extended
@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_that_swells_is_not_read_whole(
    name: str, compression: int, backed: tuple[Path, Path, str], tmp_path: Path
) -> None:
    """Whoever sends a backup need not have its key for that: it is read before a signature is checked."""
    with zipfile.ZipFile(backed[0]) as whole, zipfile.ZipFile(tmp_path / "changed.zip", "w") as changed:
        for info in whole.infolist():
            if info.filename != name:
                changed.writestr(info.filename, whole.read(info))
        changed.writestr(name, bytes(1 << 26), compression)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidFile, match="another way than ours"):
            restore(beside(tmp_path), RestoreRequest(tmp_path / "changed.zip", passphrase=PASSPHRASE, newest=True))
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
    assert nothing_left(tmp_path / "again")


def test_keys_that_are_too_large_are_refused(backed: tuple[Path, Path, str], tmp_path: Path) -> None:
    with zipfile.ZipFile(backed[0], "a") as changed:
        changed.writestr("keys.sealed", bytes(1 << 21))
    with pytest.raises(InvalidFile, match=r"'keys.sealed' is too large"):
        restore(beside(tmp_path), RestoreRequest(backed[0], passphrase=PASSPHRASE, newest=True))


def test_sealed_keys_that_nest_for_ever_are_refused() -> None:
    with pytest.raises(InvalidFile, match="damaged"):
        sealed_keys.unseal(b"[" * 200_000, PASSPHRASE)


def test_another_partys_keys_are_refused(backed: tuple[Path, Path, str], tmp_path: Path) -> None:
    backup, keys, _ = backed
    with LabelsParty(tmp_path / "other", worker=False) as other:
        theirs = keys_of(other, tmp_path / "theirs")
    with pytest.raises(SignatureInvalid):
        brought_back(backup, tmp_path / "again", theirs)
    (keys / "secret.key").write_bytes(bytes(32))
    with pytest.raises(Conflict, match=r"secret\.key"):
        brought_back(backup, tmp_path / "again", keys)
    assert nothing_left(tmp_path / "again")


def test_a_place_that_is_taken_is_refused_and_told_how_far_it_is_ahead(
    party_on: LabelsParty, database_url: str, tmp_path: Path
) -> None:
    batch = party_on.sealed_batch(label_table(40))
    taken(party_on, tmp_path / "b.zip")
    party_on.release(batch, "1")
    keys = keys_of(party_on, tmp_path / "keys")
    with pytest.raises(Conflict, match="2 events ahead"):
        brought_back(tmp_path / "b.zip", party_on.home, keys, database_url=database_url)
    assert party_on.spent(batch) == "1"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(Conflict, match="not empty"):
        brought_back(tmp_path / "b.zip", tmp_path / "full", keys)
    if not database_url.startswith("sqlite"):
        with pytest.raises(Conflict, match="2 events ahead"):
            brought_back(tmp_path / "b.zip", tmp_path / "again", keys, database_url=database_url)
        assert nothing_left(tmp_path / "again")


def test_an_empty_folder_is_filled_where_it_is(backed: tuple[Path, Path, str], tmp_path: Path) -> None:
    """A disk may be mounted there."""
    backup, keys, batch = backed
    home = tmp_path / "mounted"
    home.mkdir()
    inode = home.stat().st_ino
    brought_back(backup, home, keys)
    assert home.stat().st_ino == inode
    with LabelsParty(home, worker=False) as again:
        assert again.spent(batch) == "1"


@pytest.fixture
def whole(tmp_path: Path, database_url: str) -> Iterator[tuple[Path, Path, str]]:
    with LabelsParty(tmp_path / "whole", worker=False) as party:
        batch = party.sealed_batch(label_table(20))
        taken(party, tmp_path / "b.zip")
        yield tmp_path / "b.zip", keys_of(party, tmp_path / "keys"), batch


def test_a_restore_that_fails_at_the_end_leaves_nothing(
    whole: tuple[Path, Path, str], database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, keys, batch = whole
    with monkeypatch.context() as patch:
        patch.setattr("label_dp.backup.restoring._placed", _full)
        with pytest.raises(Unavailable):
            brought_back(backup, tmp_path / "again", keys, database_url=database_url)
    assert nothing_left(tmp_path / "again")
    brought_back(backup, tmp_path / "again", keys, database_url=database_url)
    with LabelsParty(tmp_path / "again", database_url=database_url, worker=False) as again:
        assert again.spent(batch) == "0"


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_what_is_purged_meanwhile_does_not_break_a_backup(party_on: LabelsParty, tmp_path: Path) -> None:
    """The snapshot is taken anew: what it names is in the file, and nothing of the batch that went."""
    kept, gone = (party_on.sealed_batch(label_table(20, prefix=p)) for p in ("kept", "gone"))
    purged = False

    def purge(point: str) -> None:
        nonlocal purged
        if point == "backup.snapshot:taken" and not purged:
            purged = True
            party_on.services.retention.purge(gone, "test")

    taken(party_on, tmp_path / "b.zip", faults=purge)
    assert purged
    with zipfile.ZipFile(tmp_path / "b.zip") as found:
        names = found.namelist()
    assert any(name.startswith(f"home/labels/{kept}/") for name in names)
    assert not any(name.startswith(f"home/labels/{gone}/") and name.endswith(".parquet") for name in names)
    assert not list((party_on.home / "spill").glob(f"{INCOMING}*"))


def test_a_home_that_is_not_whole_is_not_backed_up(party: LabelsParty, tmp_path: Path) -> None:
    batch = party.sealed_batch(label_table(20))
    next((party.home / "labels" / batch).glob("sealed-*.run")).unlink()
    with pytest.raises(Unavailable, match="not whole"):
        taken(party, tmp_path / "b.zip")
    assert not list(tmp_path.glob("*b.zip"))


def test_what_was_unfinished_is_not_drawn_again_and_stays_charged(party_on: LabelsParty, tmp_path: Path) -> None:
    batch = party_on.sealed_batch(label_table(20))
    waiting = party_on.charge(batch, "1")
    taken(party_on, tmp_path / "b.zip")
    assert party_on.services.pipeline.run(waiting)  # published after the backup
    found = brought_back(tmp_path / "b.zip", tmp_path / "again", keys_of(party_on, tmp_path / "keys"))
    assert any("not drawn again" in told for told in found["changed"])
    with LabelsParty(tmp_path / "again", worker=False) as again:
        again.services.worker.drain()
        assert (again.state(waiting).state, again.spent(batch)) == ("failed", "1")
        assert again.state(waiting).problem["code"] == "restored"


def test_a_restore_asks_what_came_after(backed: tuple[Path, Path, str], tmp_path: Path) -> None:
    """Without an export, and without somebody's word, ε charged since would be forgotten silently."""
    backup, keys, _ = backed
    with pytest.raises(InvalidInput, match=r"cannot know what was charged after it.*--against.*--newest"):
        brought_back(backup, tmp_path / "new", keys, newest=False)
    assert nothing_left(tmp_path / "new")


def test_what_is_noted_of_pinned_keys_is_in_a_backup(tmp_path: Path) -> None:
    """A key whose trust was taken away must not be trusted again."""
    home = Home(tmp_path / "home")
    for name in ("signing.key", "pinned/x.pub", "pinned/x.json", "pinned/.draft"):
        path = home.keys / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = key_files(home)
    assert (sorted(found["public"]), sorted(found["private"])) == (["pinned/x.json", "pinned/x.pub"], ["signing.key"])
