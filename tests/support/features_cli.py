"""The command `features-party` in this process, as its entry point runs it, with a home and a folder of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from features_party import cli

PREFIX = "FEATURES_PARTY_"


class Shell:
    """`env` holds the party's variables, the only ones of that name that a command sees."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {PREFIX + "HOME": str(folder / "home"), PREFIX + "THREADS": "1"}

    def run(self, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        words, out, err, found = ["features-party", *map(str, arguments)], io.StringIO(), io.StringIO(), 0
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", words)
            for name in [n for n in os.environ if n.startswith(PREFIX)]:
                patch.delenv(name)
            for name, value in self.env.items():
                patch.setenv(name, value)
            try:
                cli.main()
            except SystemExit as stop:
                found = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        done = subprocess.CompletedProcess(words, found, out.getvalue(), err.getvalue())
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
