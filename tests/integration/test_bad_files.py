"""Bad files at the command line are bad input: nothing is stored or written."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from label_dp.errors import LabelDPError
from labels_party.cli import app as command_line
from tests.support.desk import parquet

GOOD = parquet(example_id=["a", "b"], label=[1.0, 73.194])


@pytest.fixture
def privatize(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[LabelDPError, Path]]:
    """Run `privatize` on a file that must be refused; returns the error and the home."""
    home = tmp_path / "home"
    monkeypatch.setenv("LABELS_PARTY_HOME", str(home))

    def run(content: bytes, *options: str, name: str = "labels.csv") -> tuple[LabelDPError, Path]:
        (tmp_path / name).write_bytes(content)
        arguments = ["privatize", "--labels", str(tmp_path / name), "--id-column", "id", "--label-column", "y"]
        arguments += ["--domain", "0:100", "--epsilon", "1", "--population", "shop", "--budget", "2"]
        arguments += ["--out", str(tmp_path / "m.parquet"), "--out-of-domain", "refuse", *options]
        result = CliRunner().invoke(command_line, arguments)
        assert isinstance(result.exception, LabelDPError), (result.output, result.exception)
        assert not (tmp_path / "m.parquet").exists()
        assert not (tmp_path / "m.parquet.dsse.json").exists()
        return result.exception, home

    return run


FILES: list[tuple[str, bytes, str]] = [
    ("nan", b"id,y\na,1\nb,nan\n", "invalid-rows"),
    ("inf", b"id,y\na,1\nb,-inf\n", "invalid-rows"),
    ("text", b"id,y\na,1\nb,seven7319462851\n", "invalid-rows"),
    ("missing", b"id,y\na,1\nb,\n", "invalid-rows"),
    ("out of domain", b"id,y\na,1\nb,7319462851\n", "invalid-rows"),
    ("overflow", b"id,y\na,1\nb,1e400\n", "invalid-rows"),
    ("duplicate id", b"id,y\na,1\na,73\n", "invalid-rows"),
    ("empty id", b"id,y\na,1\n,73\n", "invalid-rows"),
    ("empty", b"", "invalid-file"),
    ("header only", b"id,y\n", "invalid-file"),
    ("wrong column", b"id,z\na,7319462851\n", "invalid-table"),
    ("ragged", b"id,y\na,1,7319462851\n", "invalid-file"),
    ("half parquet", GOOD[: len(GOOD) // 2], "invalid-file"),
    ("float ids", parquet(id=[1.5], y=[73]), "invalid-table"),
    ("nan in parquet", parquet(id=["a"], y=[math.nan]), "invalid-rows"),
    ("bool in parquet", parquet(id=["a"], y=[True]), "invalid-table"),
]


@pytest.mark.parametrize(("content", "code"), [f[1:] for f in FILES], ids=[f[0] for f in FILES])
def test_bad_files_are_bad_input(
    content: bytes, code: str, privatize: Callable[..., tuple[LabelDPError, Path]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        error, home = privatize(content)
    assert (error.code, error.exit_code) == (code, 2)
    for text in ("7319462851", "seven"):
        assert text not in error.detail + str(error.extras()) + caplog.text
    assert not [p for p in (home / "labels").rglob("*") if p.is_file()]


def test_bad_lists_of_ids_are_bad_input(privatize: Callable[..., tuple[LabelDPError, Path]], tmp_path: Path) -> None:
    good = b"id,y\na,1\nb,2\n"
    examples = tmp_path / "examples.csv"
    for content, code in (
        (b"id\na\n", "invalid-rows"),  # b is not listed
        (b"id\na\nb\nb\n", "invalid-rows"),
        (b"id\n", "invalid-file"),
        (b"name\na\n", "invalid-table"),
        (b"id\na\nb\nc\n", "missing-labels"),
    ):
        examples.write_bytes(content)
        error, home = privatize(good, "--examples", str(examples))
        assert error.code == code
        assert not [p for p in (home / "labels").rglob("*") if p.is_file()]
