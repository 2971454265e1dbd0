"""Output files of commands: complete or not at all, and never over another file unasked."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from label_dp.errors import InvalidFile, InvalidInput
from label_dp.store.output_files import replacing, writable


def names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


def test_a_new_file_appears_complete_under_its_name(tmp_path: Path) -> None:
    out = tmp_path / "table.csv"
    with replacing(out) as path:
        assert path.suffix == ".csv"
        assert path.parent == tmp_path
        path.write_text("half")
        assert not out.exists()
        path.write_text("whole")
    assert out.read_text() == "whole"
    assert names(tmp_path) == ["table.csv"]


def test_an_existing_file_is_refused_before_work_and_names_the_option(tmp_path: Path) -> None:
    out = tmp_path / "table.csv"
    out.write_text("before")
    with pytest.raises(InvalidInput, match=r"table\.csv' exists already\. Give --force") as refused:
        writable(out)
    assert refused.value.exit_code == 2
    with pytest.raises(InvalidInput), replacing(out):
        pytest.fail("the body must not run")
    assert out.read_text() == "before"


def test_force_replaces_and_a_failure_keeps_the_old_file(tmp_path: Path) -> None:
    out = tmp_path / "table.csv"
    out.write_text("before")
    with pytest.raises(ZeroDivisionError), replacing(out, force=True) as path:
        assert path.write_text("half") / 0
    assert out.read_text() == "before"
    with replacing(out, force=True) as path:
        path.write_text("after")
    assert out.read_text() == "after"
    assert names(tmp_path) == ["table.csv"]


def test_a_name_that_was_taken_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "table.csv"

    def race() -> None:
        with replacing(out) as path:
            path.write_text("mine")
            out.write_text("theirs")

    with pytest.raises(InvalidInput, match="someone else"):
        race()
    assert out.read_text() == "theirs"
    assert names(tmp_path) == ["table.csv"]


def test_folders_are_replaced_as_a_whole(tmp_path: Path) -> None:
    out = tmp_path / "model"
    for content in ("first", "second"):
        with replacing(out, force=True) as path:
            path.mkdir()
            (path / f"{content}.json").write_text(content)
    assert names(out) == ["second.json"]
    assert names(tmp_path) == ["model"]
    with pytest.raises(InvalidInput):
        writable(out)


def test_a_missing_folder_and_a_full_disk_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="does not exist; make it first"):
        writable(tmp_path / "nowhere" / "x.csv")
    with pytest.raises(InvalidFile, match="cannot be written"), replacing(tmp_path / "x.csv"):
        os.write(os.open("/dev/full", os.O_WRONLY), b"x")


def test_a_pipe_is_written_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with replacing(pipe) as path:
        path.write_text("through")
    reader.join()
    assert read == ["through"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.write_text("before")
    link.symlink_to(target)
    with replacing(link, force=True) as path:
        path.write_text("after")
    assert link.is_symlink()
    assert target.read_text() == "after"
