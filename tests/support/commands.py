"""Either console command in this process, as its entry point runs it: what it prints, and its exit code."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest


def command(
    name: str, *arguments: object, folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """`name` is labels-party or features-party; of the parties' own variables it sees those in `environment` alone."""
    import features_party.cli
    import labels_party.cli

    main = {"labels-party": labels_party.cli.main, "features-party": features_party.cli.main}[name]
    words, out, err, code = [name, *map(str, arguments)], io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.setattr(sys, "argv", words)
        for variable in [v for v in os.environ if v.startswith(("LABELS_PARTY_", "FEATURES_PARTY_"))]:
            patch.delenv(variable)
        for variable, value in environment.items():
            patch.setenv(variable, value)
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
