"""Homes, databases and what services write: their owner alone may read them, also where they were open before."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from features_party.bootstrap import bootstrap as features_bootstrap
from features_party.settings import Settings as FeaturesSettings
from label_dp.errors import Unavailable
from label_dp.store.database import Database
from labels_party.bootstrap import bootstrap as labels_bootstrap
from labels_party.settings import Settings as LabelsSettings
from tests.support.labels import LabelsParty, label_table

Start = Callable[[Path], Any]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


def labels(home: Path) -> None:
    labels_bootstrap(LabelsSettings(home=home)).close()


def features(home: Path) -> None:
    features_bootstrap(FeaturesSettings(home=home)).database.dispose()


PARTIES = pytest.mark.parametrize("start", [labels, features])


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    """The worst that a machine may have: whatever is made is everybody's."""
    before = os.umask(0)
    yield
    os.umask(before)


def others(path: Path) -> int:
    return path.stat().st_mode & 0o077


def open_up(home: Path) -> None:
    home.chmod(0o755)
    for path in home.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def loose(home: Path) -> list[str]:
    """What of a home others may read by its own permissions, public keys left out."""
    found = [home, *home.rglob("*")]
    return [str(p.relative_to(home)) for p in found if p.suffix != ".pub" and not p.is_symlink() and others(p)]


@PARTIES
def test_a_new_home_is_its_owners_alone(start: Start, tmp_path: Path) -> None:
    home = tmp_path / "home"
    start(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert all(not others(entry) for entry in home.iterdir())
    assert next(home.glob("*.sqlite")).stat().st_mode & 0o777 == 0o600


@PARTIES
def test_a_home_that_was_open_is_closed_with_all_that_is_in_it(start: Start, tmp_path: Path) -> None:
    home = tmp_path / "home"
    start(home)
    (home / "spill" / "left").mkdir()
    (home / "spill" / "left" / "rows").write_bytes(b"x")
    open_up(home)
    assert len(loose(home)) > 5  # the control: it is seen where it is so
    public = (home / "keys" / "signing.pub").stat().st_mode
    start(home)
    assert loose(home) == []
    assert (home / "keys" / "signing.pub").stat().st_mode == public


@PARTIES
def test_a_folder_behind_a_link_and_a_room_that_is_a_link_are_closed(start: Start, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o755)
    home = tmp_path / "home"
    home.symlink_to(disk)
    room = "labels" if start is labels else "messages"
    away = tmp_path / "away"
    (away / "inner").mkdir(parents=True)
    (away / "inner" / "file").write_bytes(b"x")
    (disk / room).symlink_to(away)
    start(home)
    assert not others(disk)
    assert loose(away) == []


def test_a_link_inside_a_room_leads_nowhere_else(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    labels(home)
    elsewhere.write_bytes(b"not ours")
    elsewhere.chmod(0o644)
    (home / "spill" / "link").symlink_to(elsewhere)
    open_up_but_links(home)
    labels(home)
    assert elsewhere.stat().st_mode & 0o777 == 0o644


def open_up_but_links(home: Path) -> None:
    home.chmod(0o755)
    for path in home.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)


@PARTIES
def test_what_cannot_be_closed_is_refused_with_a_sentence(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of somebody else, or a file system without permissions: there `chmod` is refused, or does nothing."""
    for refusing in (True, False):
        home = tmp_path / f"home-{refusing}"
        home.mkdir(mode=0o755)

        def chmod(path: Path, mode: int, *, refusing: bool = refusing, **_: Any) -> None:
            if refusing:
                raise PermissionError(1, "Operation not permitted")

        with monkeypatch.context() as patch:
            patch.setattr(Path, "chmod", chmod)
            with pytest.raises(Unavailable, match=r"can be read by other users.*chmod -R go=.*_PARTY_HOME"):
                start(home)
        assert not list(home.glob("*.sqlite"))  # refused before anything is written there
        assert not list((home / "keys").glob("*.key"))


def test_a_home_that_is_another_users_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    home = tmp_path / "home"
    home.symlink_to(disk)
    if os.geteuid() == 0:
        os.lchown(home, 54321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(Unavailable, match="link of another user"):
        labels(home)
    monkeypatch.undo()
    os.lchown(home, os.geteuid(), -1)
    labels(home)


def test_a_database_elsewhere_is_closed_with_its_logs_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "elsewhere.sqlite"
    database = Database(f"sqlite:///{place}")
    database.write("make", lambda c: c.exec_driver_sql("CREATE TABLE t (x INTEGER)") and None)
    files = [Path(f"{place}{end}") for end in ("", "-wal", "-shm")]
    assert all(path.exists() and not others(path) for path in files)
    for path in files:
        path.chmod(0o644)
    second = Database(f"sqlite:///{place}")
    assert not any(others(path) for path in files)
    second.dispose()
    database.dispose()
    place.chmod(0o644)
    monkeypatch.setattr(Path, "chmod", lambda *_, **__: None)
    with pytest.raises(Unavailable, match="database's URL"):
        Database(f"sqlite:///{place}")


def test_a_day_leaves_nothing_in_the_home_that_others_reach(tmp_path: Path) -> None:
    """Whatever its own permissions are, every path to it leads through a folder of its owner alone."""
    home = tmp_path / "home"
    with LabelsParty(home, worker=False) as party:
        batch = party.sealed_batch(label_table(50))
        party.release(batch)
        for path in home.rglob("*"):
            assert not others(home)
            assert not others(home / path.relative_to(home).parts[0])


@pytest.mark.processes
def test_a_service_makes_files_of_its_own() -> None:
    """`serve` sets the mask of its process before it makes anything; a command line's outputs keep the user's."""
    script = (
        "import os, label_dp.http.serving as s\n"
        "class Settings: log_format = 'text'; shutdown_seconds = 1\n"
        "try: s.serve(None, '256.0.0.1', 1, 'x', Settings())\n"
        "except Exception: pass\n"
        "print(oct(os.umask(0)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0o77"
