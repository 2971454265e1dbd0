"""Pulls over connections that break: parts in parallel, resumed, verified while they come, accounted for once."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from features_party.bootstrap import Services
from features_party.receive import fetching, placing
from features_party.receive.labels_service import LabelsService
from features_party.storage.home import INCOMING
from label_dp import errors
from label_dp.audit.events import ACCEPTED
from label_dp.documents.arriving import Arriving
from label_dp.documents.bundle import VerifiedMessage, verify
from tests.support.breaking import RELEASE, Files, breaking, sent_message
from tests.support.messages import Sender, features_party

PARTS = 5


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def files(sender: Sender, tmp_path: Path) -> Files:
    return sent_message(sender, tmp_path / "there", PARTS)


@pytest.fixture
def services(sender: Sender, tmp_path: Path) -> Iterator[Services]:
    started = features_party(tmp_path / "home")
    started.pinned.pin(sender.public_key(tmp_path))
    yield started
    started.close()


def labels_party(url: str, **rules: Any) -> LabelsService:
    return LabelsService(url, "secret", sleep=lambda _s: None, **rules)


def pull(services: Services, url: str, out: Path | None = None, **rules: Any) -> None:
    with labels_party(url, **rules) as service:
        arrivals = services.arrivals()
        if out is None:
            arrivals.bring(service, RELEASE, lambda _w, _s: None)
        else:
            arrivals.pull(service, RELEASE, out, lambda _w, _s: None)


def size(files: Files, name: str) -> int:
    return (files.folder / name).stat().st_size


def events(services: Services) -> int:
    return len(services.database.read("test", lambda c: services.audit.events(c, kind=ACCEPTED)))


def left(services: Services) -> list[str]:
    return sorted(path.name for path in services.home.messages.iterdir() if path.name.startswith(INCOMING))


def test_parts_that_break_off_go_on_where_they_were(services: Services, files: Files, tmp_path: Path) -> None:
    files.cut = lambda _name, number: 1000 + 777 * number if number < 3 else None
    with breaking(files) as url:
        pull(services, url, tmp_path / "out")
    assert checked(services, files, tmp_path / "out").manifest.n == 20_000
    assert services.messages.open(RELEASE).rows().num_rows == 20_000
    parts = [name for name in files.sent if name.startswith("part")]
    assert len(parts) == PARTS
    assert {name: files.sent[name] for name in parts} == {name: size(files, name) for name in parts}  # no byte twice
    assert [a.start for a in files.asked if a.name == parts[0]] == [0, 1000, 2777, 5331]
    assert {a.headers.get("if-match") for a in files.asked if a.start} == {'"v1"'}
    assert (events(services), left(services)) == (1, [])


def checked(services: Services, files: Files, out: Path) -> VerifiedMessage:
    envelope = (files.folder / "manifest.dsse.json").read_bytes()
    return verify(out, services.pinned.for_envelope(envelope), "features-party")


def test_a_few_at_a_time(services: Services, sender: Sender, tmp_path: Path) -> None:
    files = sent_message(sender, tmp_path / "many", 40, 2000)
    gate = threading.Barrier(fetching.AT_ONCE, timeout=10)
    passed = itertools.count()

    def together(_name: str, _number: int) -> None:
        if next(passed) < fetching.AT_ONCE:
            gate.wait()  # so many are under way at once

    files.cut = together
    with breaking(files) as url:
        pull(services, url)
    assert files.most <= fetching.AT_ONCE
    assert services.messages.open(RELEASE).rows().num_rows == 2000


def test_another_version_is_begun_anew(services: Services, files: Files) -> None:
    """What comes first is another file of the same name; its tag changes when the right one takes its place."""
    name = "part-2.parquet"
    right = (files.folder / name).read_bytes()
    files.changed[name] = bytes(len(right))
    files.cut = lambda asked, number: 3000 if asked == name and number == 0 else None

    def tag(asked: str, number: int) -> str:
        if asked == name and number == 1:
            files.changed[name] = right
        return f'"v{int(asked == name and number > 0)}"'

    files.tag = tag
    with breaking(files) as url:
        pull(services, url)
    assert [a.start for a in files.asked if a.name == name] == [0, 3000, 0]
    assert events(services) == 1


@pytest.mark.parametrize("resumed", [False, True])
def test_one_bad_part_and_nothing_is_taken(services: Services, files: Files, resumed: bool, tmp_path: Path) -> None:
    name = "part-3.parquet"
    files.changed[name] = (files.folder / name).read_bytes()[:-1] + b"x"
    files.cut = lambda asked, number: 500 if resumed and number == 0 else None
    with breaking(files) as url, pytest.raises(errors.DigestMismatch, match=name):
        pull(services, url, tmp_path / "out")
    assert (events(services), left(services)) == (0, [])
    assert not (tmp_path / "out").exists()
    assert list(services.home.messages.iterdir()) == []


def test_a_pull_that_was_given_up_is_taken_up_again(services: Services, files: Files, tmp_path: Path) -> None:
    files.cut = lambda _name, number: 2000 if number == 0 else 0
    with breaking(files) as url, pytest.raises(errors.Unavailable):
        pull(services, url, tmp_path / "out")
    assert events(services) == 0
    assert len(left(services)) == 1
    assert not (tmp_path / "out").exists()
    assert services.home.sweep() == 0  # young
    there = {path.name: path.stat().st_size for path in (services.home.messages / left(services)[0]).iterdir()}
    assert 2000 in there.values()  # others may have been stopped a byte before
    files.cut, files.asked = lambda _name, _number: None, []
    with breaking(files) as url:
        pull(services, url, tmp_path / "out")
    whole = {name for name, bytes_ in there.items() if bytes_ == size(files, name)}
    assert {a.name: a.start for a in files.asked} == {
        name: there.get(name, 0) for name in (*files.names(), *there) if name not in whole
    }
    assert (events(services), left(services)) == (1, [])


def test_two_pulls_at_once_do_not_meet(services: Services, files: Files) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def cut(_name: str, number: int) -> None:
        if number == 0:
            begun.set()
            go_on.wait(20)

    files.cut = cut
    with breaking(files) as url:
        first = threading.Thread(target=pull, args=(services, url))
        first.start()
        assert begun.wait(10)
        second = threading.Thread(target=pull, args=(services, url))
        second.start()
        while len(left(services)) < 2:
            time.sleep(0.01)
        go_on.set()
        first.join(20)
        second.join(20)
    assert (events(services), left(services)) == (1, [])
    assert services.messages.open(RELEASE).rows().num_rows == 20_000


def test_a_full_disk_is_a_sentence_and_leaves_nothing(
    services: Services, files: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(self: Arriving, piece: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with breaking(files) as url:
        with monkeypatch.context() as patch:
            patch.setattr(Arriving, "write", full)
            with pytest.raises(errors.InvalidFile, match="No space left"):
                pull(services, url, tmp_path / "out")
        assert (events(services), left(services)) == (0, [])
        with monkeypatch.context() as patch:  # where the copy goes, after it was accepted
            patch.setattr(placing, "copy_file", lambda _source, _target: full(cast(Any, None), b""))
            with pytest.raises(errors.InvalidFile, match=r"cannot be written to '.*out' \(No space left"):
                pull(services, url, tmp_path / "out")
        assert (events(services), left(services)) == (1, [])
        assert not (tmp_path / "out").exists()
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")] == []
        fetched = len(files.asked)
        pull(services, url, tmp_path / "out")
    assert (events(services), len(files.asked)) == (1, fetched)


def test_a_failure_ends_the_waiting_of_the_others(services: Services, files: Files) -> None:
    name = "part-1.parquet"
    files.changed[name] = bytes(size(files, name))
    files.cut = lambda asked, _number: None if asked == name else 0
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        time.sleep(0.1)

    with breaking(files) as url, LabelsService(url, sleep=sleep) as service:
        arrivals = services.arrivals()
        with pytest.raises(errors.DigestMismatch, match=name):
            arrivals.bring(service, RELEASE, lambda _w, _s: None)
    assert len(pauses) < 3 * fetching.AT_ONCE  # of six tries each


def test_what_we_keep_is_copied_and_not_fetched_again(services: Services, files: Files, tmp_path: Path) -> None:
    with breaking(files) as url:
        pull(services, url)
        before = len(files.asked)
        pull(services, url, tmp_path / "out")
        assert len(files.asked) == before
        kept = services.messages.open(RELEASE).folder
        (kept / "prior.parquet").unlink()  # an upload may have come without it
        pull(services, url, tmp_path / "another")
        assert len(files.asked) > before
        assert (services.messages.open(RELEASE).folder / "prior.parquet").exists()
    for out in ("out", "another"):
        found = checked(services, files, tmp_path / out)
        assert (found.manifest.n, found.prior_path is not None) == (20_000, True)
    assert events(services) == 1


def test_a_redirect_is_followed_without_our_key(services: Services, files: Files) -> None:
    store = Files(files.folder, cut=lambda _name, number: 1500 if number == 0 else None, tag=lambda _n, _i: '"md5-2"')
    with breaking(store) as elsewhere, breaking(files) as url:
        files.redirect = f"{elsewhere}/bucket"
        pull(services, url)
    assert len(store.asked) > PARTS
    for asked in store.asked:
        assert not {"authorization", "idempotency-key", "cookie"} & set(asked.headers)
    assert {a.headers.get("if-match") for a in store.asked if a.start} == {'"md5-2"'}
    assert {a.headers.get("if-match") for a in files.asked} == {None}  # it knows no tag of the store
    assert {a.headers["authorization"] for a in files.asked} == {"Bearer secret"}
    assert events(services) == 1


def test_a_redirect_is_held_to_the_list(services: Services, files: Files) -> None:
    with breaking(Files(files.folder)) as elsewhere, breaking(files) as url:
        files.redirect = f"{elsewhere}/bucket"
        with pytest.raises(errors.Refusal, match="FEATURES_PARTY_FILE_URLS"):
            pull(services, url, closed=True)
        with pytest.raises(errors.Refusal, match="FEATURES_PARTY_FILE_URLS"):
            pull(services, url, files=(f"{elsewhere}/other",))
        assert events(services) == 0
        pull(services, url, files=(f"{elsewhere}/bucket",), closed=True)
    assert events(services) == 1


@pytest.mark.parametrize("status", [403, 404, 307, 500])
def test_a_store_that_refuses_is_a_sentence(services: Services, files: Files, status: int) -> None:
    store = Files(files.folder, status=status)
    with breaking(store) as elsewhere, breaking(files) as url:
        files.redirect = elsewhere
        with pytest.raises(errors.Unavailable, match=f"status {status}"):
            pull(services, url)
    assert files.names().count(files.names()[0]) == store.names().count(files.names()[0]) > 1  # a fresh signature each
    assert events(services) == 0


PULL = """
import sys
from features_party.cli import main
main()
"""


@pytest.mark.processes
def test_a_killed_pull_is_taken_up_by_the_next_one(sender: Sender, files: Files, tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    key = sender.public_key(tmp_path)
    environment = os.environ | {"FEATURES_PARTY_HOME": str(home), "FEATURES_PARTY_LABELS_API_KEY": "secret"}
    files.cut, files.stall = lambda name, _number: size(files, name) // 2, threading.Event()
    with breaking(files) as url:
        arguments = ["pull", "--url", url, "--release", RELEASE, "--labels-key", key, "--out", out]
        command = [sys.executable, "-c", PULL, *map(str, arguments)]
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            until = time.monotonic() + 30
            while len(there := [p.stat().st_size for p in home.glob("messages/.incoming-*/*")]) < 3 or not all(there):
                assert time.monotonic() < until
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
        files.stall.set()
        assert not out.exists()
        partial = {p.name: p.stat().st_size for p in home.glob("messages/.incoming-*/*")}
        files.cut, files.asked = lambda _name, _number: None, []
        subprocess.run(command, env=environment, check=True, capture_output=True)
    starts = {a.name: a.start for a in files.asked}
    assert {name: start for name, start in starts.items() if start} == {
        name: held for name, held in partial.items() if 0 < held < size(files, name)
    }
    assert max(starts.values()) > 0
    assert verify(out, sender.key.public, "features-party").manifest.n == 20_000
