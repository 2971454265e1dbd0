"""The command `labels-party` in this process, its usual arguments and what it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from label_dp.documents.bundle import verify
from label_dp.documents.rows import read_message
from label_dp.documents.signing import VerifyingKey


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


def arguments(file: Path, to: str = "m.parquet", /, **changes: str | None) -> list[str]:
    options: dict[str, str | None] = {
        "labels": str(file),
        "id-column": "example_id",
        "label-column": "label",
        "domain": "0:10",
        "epsilon": "1",
        "population": "shop",
        "budget": "2",
        "mechanism": "rr-on-bins",
        "out": to,
    }
    options |= {name.replace("_", "-"): value for name, value in changes.items()}
    return [
        "privatize",
        *(part for name, value in options.items() if value is not None for part in (f"--{name}", value)),
    ]


def budgets(run: Run, home: Path) -> list[dict[str, Any]]:
    """The ledger as the command shows it; a party that was never made has none."""
    return list(run("budget", "--json").json) if (home / "keys").exists() else []


def refused(result: Result, code: int, *words: str) -> None:
    """One line on stderr, no traceback, nothing on stdout."""
    assert result.code == code, result.err
    assert result.err.startswith("error: "), result.err
    assert result.err.count("\n") == 1, result.err
    assert "Traceback" not in result.err
    assert result.out == ""
    for word in words:
        assert word in result.err, result.err


def read(path: Path, home: Path) -> pa.Table:
    verified = verify(path, VerifyingKey.load(home / "keys" / "signing.pub"), "features-party")
    return read_message(list(verified.paths), verified.manifest)
