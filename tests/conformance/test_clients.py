"""Product and standalone verifier say of every file of the kit what the kit says."""

from __future__ import annotations

import collections
import json
import sys
from pathlib import Path

import pytest

from deploy.verify_standalone import document
from tests.conformance.__main__ import arguments_of, differences, process
from tests.conformance.make import make
from tests.conformance.verdict import CLIENTS


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_says_what_the_kit_says(client: str, kit: Path) -> None:
    lines, counts = differences(kit, CLIENTS[client])
    assert lines == []
    assert sum(counts.values()) > 900


def test_a_client_that_skips_a_check_is_caught(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_check_unit", lambda d: None)
    lines, _ = differences(kit, CLIENTS["standalone"])
    assert lines
    assert all("accepted" in line and "not malformed" in line for line in lines)


def test_every_command_reason_and_rule_is_in_the_kit(kit: Path) -> None:
    codes = collections.Counter(
        (case["command"], case["code"]) for case in json.loads((kit / "cases.json").read_text())
    )
    for command in ("verify-message", "verify-answer"):
        assert {"accepted", "malformed", "audience", "version"} <= {code for of, code in codes if of == command}
    rules = {code for _, code in codes if code.startswith("rule-")}
    assert rules == {f"rule-{number}" for number in range(1, 23) if number != 19}
    assert codes["verify-audit", "against"] > 2


@pytest.mark.processes
@pytest.mark.parametrize("client", CLIENTS)
def test_the_protocol_by_processes(client: str, kit: Path) -> None:
    cases = {case["code"]: case for case in json.loads((kit / "cases.json").read_text())}
    run = process([sys.executable, "-m", "tests.conformance.verdict", client])
    for code in ("accepted", "digest", "rule-8"):
        assert run(cases[code]["command"], arguments_of(kit, cases[code])).code == code


@pytest.mark.extended
def test_the_kit_is_what_its_maker_writes(kit: Path, tmp_path: Path) -> None:
    made = make(tmp_path / "kit")
    cases = json.loads((kit / "cases.json").read_text())
    assert [(case.name, case.code) for case in made] == [(case["name"], case["code"]) for case in cases]
