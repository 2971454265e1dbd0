"""A key is never a word of a command line, which every user of the machine can read: a file or the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from features_party import cli as features_cli
from labels_party import cli as labels_cli
from tests.support.features_cli import Shell, key_file
from tests.support.labels import LabelsParty
from tests.support.serving import serving

SECRET = re.compile(r"api.?key|secret|password|token|bearer|database.?url")
ROOT = Path(__file__).parents[2]


def options(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for parameter in command.params:
        yield path, parameter
    for name, inner in getattr(command, "commands", {}).items():
        yield from options(inner, f"{path} {name}")


@pytest.mark.parametrize("module", [labels_cli, features_cli], ids=["labels-party", "features-party"])
def test_no_option_of_any_command_takes_a_secret(module: Any) -> None:
    found = list(options(typer.main.get_command(module.app), ""))
    assert len(found) > 60
    for command, parameter in found:
        for name in (*parameter.opts, *parameter.secondary_opts):
            if SECRET.search(name.lower()):
                assert name.endswith("-file"), (command, name)


def documents() -> list[Path]:
    return [ROOT / "README.md", *ROOT.glob("deploy/**/*.md"), *ROOT.glob("*_party/*.md"), ROOT / "docker-compose.yml"]


def test_no_document_shows_a_key_on_a_command_line() -> None:
    """In a shell's own words (`echo`, `printf`) it is no other process's argument."""
    assert len(documents()) >= 6
    for path in documents():
        for line in path.read_text().splitlines():
            assert "--api-key " not in line, (path.name, line)
            if "Bearer $" in line:
                assert re.search(r"<\((echo|printf) [^)]*Bearer \$", line), (path.name, line)


def test_a_file_of_a_key_is_its_owners_alone(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with LabelsParty(tmp_path / "labels", worker=False) as party:
        key = party.services.apikeys.create("features", "features-party")[1]
        public = party.services.home.public_key
        with serving(party.client().app) as url:
            ask = ("pull", "--url", url, "--release", "none", "--out", "x.parquet", "--labels-key", public)
            for mode in (0o644, 0o640, 0o604, 0o620):
                said = shell.refused(*ask, "--api-key-file", key_file(tmp_path / "open.key", key, mode), code=2)
                assert "can be read by other users" in said
                assert "chmod 600" in said
                assert key not in said
            for text in ("", "two words", "x" * 2000, "ключ"):
                said = shell.refused(*ask, "--api-key-file", key_file(tmp_path / "odd.key", text), code=2)
                assert "does not hold an API key" in said
            assert "cannot be read" in shell.refused(*ask, "--api-key-file", tmp_path / "none.key", code=2)
            own = key_file(tmp_path / "own.key", key)
            assert "no release" in shell.refused(*ask, "--api-key-file", own, code=1)  # the key was taken
            assert shell.run(*ask, "--api-key", key, code=2).stdout == ""
