"""Output that the terminal's encoding lacks is replaced: no command fails after its ε was charged."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import features_party.cli
import labels_party.cli

ROOT = Path(__file__).parents[2]
ENCODINGS = ("ascii", "cp1252")  # the C locale without UTF-8 mode; a pipe on Windows
PRIVATIZE = (
    "privatize", "--labels", "l.csv", "--id-column", "id", "--label-column", "eur", "--domain", "0:50",
    "--epsilon", "1", "--mechanism", "one-bit", "--population", "käse", "--budget", "9",
)  # fmt: skip


@pytest.fixture(params=ENCODINGS)
def encoding(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(folder: Path, encoding: str, *words: str, party: str = "labels") -> tuple[int, str]:
    """Exit code and output of a command whose standard output refuses what `encoding` lacks, as Python opens it."""
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    main = labels_party.cli.main if party == "labels" else features_party.cli.main
    code: object = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", [f"{party}-party", *words])
        patch.setattr(sys, "stdout", out)
        patch.setenv("LABELS_PARTY_HOME", str(folder / "labels"))
        patch.setenv("FEATURES_PARTY_HOME", str(folder / "features"))
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        out.flush()
    return int(str(code)), out.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]  # it is a BytesIO


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "l.csv").write_text("id,eur\n" + "".join(f"c{i},{i % 50}\n" for i in range(100)))
    return tmp_path


def test_a_charged_release_ends_well(folder: Path, encoding: str) -> None:
    code, said = run(folder, encoding, *PRIVATIZE, "--out", "m.parquet")
    assert code == 0, said
    assert "?" in said  # ε has no place in either
    assert (folder / "m.parquet").is_file()
    for words in (("budget",), ("audit", "show"), ("inspect", "m.parquet")):
        assert run(folder, encoding, *words)[0] == 0, words


def test_json_keeps_every_value(folder: Path, encoding: str) -> None:
    code, said = run(folder, encoding, *PRIVATIZE, "--out", "m.parquet", "--json")
    assert code == 0
    assert json.loads(said)
    listed = json.loads(run(folder, encoding, "audit", "show", "--json")[1])
    line = json.loads(run(folder, encoding, "audit", "show", "--ndjson")[1].splitlines()[0])
    assert listed[0] == line
    assert "käse" in json.dumps(listed, ensure_ascii=False)


@pytest.mark.parametrize("party", ["labels", "features"])
@pytest.mark.parametrize("words", [("--help",), ("audit", "--help")])
def test_every_help_is_shown(tmp_path: Path, encoding: str, party: str, words: tuple[str, ...]) -> None:
    code, said = run(tmp_path, encoding, *words, party=party)
    assert code == 0
    assert "Usage" in said


@pytest.mark.processes
@pytest.mark.parametrize(
    "words",
    [
        (str(ROOT / "deploy" / "verify_standalone"), "--help"),
        ("-m", "deploy.demo", "--help"),
        ("-c", "from labels_party.cli import main; main()", "--help"),
    ],
)
def test_programs_of_their_own(words: tuple[str, ...]) -> None:
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, *words], env=os.environ | locale, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode("ascii", "replace")[-500:]
