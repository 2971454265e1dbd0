"""Archives that unpack to more than they came with: nothing of an upload is signed before it lies on the disk."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from features_party.receive.uploads import MAX_PARTS, untar
from label_dp.errors import InvalidFile

REAL = 300_000_000


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE, pax: dict[str, str] | None = None) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    if pax is None:
        return info.tobuf(tarfile.GNU_FORMAT)
    info.pax_headers = pax
    return info.tobuf(tarfile.PAX_FORMAT)


def old_sparse() -> bytes:
    """The format of GNU tar of old: the map of holes inside the header."""
    data = bytearray(header("m", 512, tarfile.GNUTYPE_SPARSE))
    data[386:410] = b"00000000000\0" + b"00000001000\0"
    data[483:495] = f"{REAL:011o}\0".encode()
    data[148:156] = b" " * 8
    data[148:156] = f"{sum(data):06o}\0 ".encode()
    return bytes(data) + b"x" * 512


def pax_sparse(minor: str) -> bytes:
    names = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(REAL)}
    if minor == "1.0":
        return header("m", 1024, pax=names) + b"1\n0\n512\n".ljust(512, b"\0") + b"x" * 512
    return header("m", 512, pax={"GNU.sparse.map": "0,512", "GNU.sparse.size": str(REAL)}) + b"x" * 512


END = b"\0" * 1024


@pytest.mark.parametrize(
    "data", [old_sparse(), pax_sparse("1.0"), pax_sparse("0.1")], ids=["old", "pax-1.0", "pax-0.1"]
)
def test_a_sparse_member_is_refused_before_it_is_written(data: bytes, tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(data + END)
    with tarfile.open(archive) as tar:
        (member,) = tar.getmembers()
        assert member.issparse()
        assert member.size == REAL
    with pytest.raises(InvalidFile, match="unpacks to more"):
        untar(archive, tmp_path)
    assert list(tmp_path.iterdir()) == [archive]


@pytest.mark.parametrize(
    "data",
    [
        header("m", 1 << 40),
        header("m", 400, pax={"size": str(1 << 40)}) + b"x" * 512,
        header("m", 400) + b"x" * 512 + header("d/", 1 << 40, tarfile.DIRTYPE),
        header("m", -512),
    ],
)
def test_sizes_are_no_larger_than_the_archive(data: bytes, tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(data + END)
    with pytest.raises(InvalidFile):
        untar(archive, tmp_path)
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) < 4 * len(data + END)


def test_a_header_of_many_megabytes_is_not_read(tmp_path: Path) -> None:
    archive, size = tmp_path / "a.tar", 8 << 20
    for kind in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE):
        archive.write_bytes(header("n", size, kind) + b"x" * size + header("m", 3) + b"abc".ljust(512, b"\0") + END)
        with pytest.raises(InvalidFile):
            untar(archive, tmp_path)


def test_members_are_counted_whatever_they_are(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(header("d/", 0, tarfile.DIRTYPE) * (MAX_PARTS + 1) + END)
    with pytest.raises(InvalidFile, match="more"):
        untar(archive, tmp_path)


def test_headers_that_nest_without_end_are_a_sentence(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes((header("n", 3, tarfile.GNUTYPE_LONGNAME) + b"abc".ljust(512, b"\0")) * 5000 + END)
    with pytest.raises(InvalidFile):
        untar(archive, tmp_path)


def test_files_come_out_as_they_went_in(tmp_path: Path) -> None:
    archive, files = tmp_path / "a.tar", {"../a": b"", "folder/b": b"x" * 700_000, "c" * 300: b"c"}
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT):
        with tarfile.open(archive, "w", format=form) as tar:
            for name, data in files.items():
                info = tarfile.TarInfo(name if form != tarfile.USTAR_FORMAT else name[:90])
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        folder = tmp_path / str(form)
        folder.mkdir()
        assert [path.read_bytes() for _, path in untar(archive, folder)] == list(files.values())
