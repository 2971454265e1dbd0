"""The command `features-party` in this process, with a home and a working folder of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.commands import command


class Shell:
    """`env` holds the party's variables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"FEATURES_PARTY_HOME": str(folder / "home"), "FEATURES_PARTY_THREADS": "1"}

    def run(self, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = command("features-party", *arguments, folder=self.folder, environment=self.env)
        assert done.returncode == code, (done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def json(self, *arguments: object) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)

    def refused(self, *arguments: object, code: int) -> str:
        done = self.run(*arguments, code=code)
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        return done.stderr


def key_file(path: Path, key: str, mode: int = 0o600) -> Path:
    """A file with an API key in it."""
    path.write_text(key + "\n")
    path.chmod(mode)
    return path
