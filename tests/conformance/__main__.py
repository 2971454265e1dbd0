"""Run a client over the kit and print the cases of which it says something else.

    python -m tests.conformance FOLDER CLIENT-COMMAND …

FOLDER: where `kit.tar.xz` is unpacked. A client that does not check a part says so with exit code 3.
"""

from __future__ import annotations

import collections
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conformance.verdict import UNCHECKED, Verdict

Client = Callable[[str, list[str]], Verdict]
CODE_OF_EXIT = {0: "accepted", 3: UNCHECKED}


def process(words: list[str]) -> Client:
    """A client by the protocol: a process for each case."""

    def client(command: str, arguments: list[str]) -> Verdict:
        done = subprocess.run([*words, command, *arguments], capture_output=True, text=True, timeout=120, check=False)
        first, _, why = done.stdout.strip().partition("\n")
        code = first.strip() if done.returncode == 1 else CODE_OF_EXIT.get(done.returncode, f"exit {done.returncode}")
        return Verdict(code, why or done.stderr.strip())

    return client


def arguments_of(folder: Path, case: dict[str, Any]) -> list[str]:
    """The words of a case, with files below `folder`."""
    return [str(folder / word) if word.startswith(("keys/", "cases/")) else word for word in case["arguments"]]


def differences(folder: Path, client: Client) -> tuple[list[str], collections.Counter[str]]:
    """(a line for each case with another verdict, how many cases by command and outcome)."""
    lines, counts = [], collections.Counter[str]()
    for case in json.loads((folder / "cases.json").read_text(encoding="utf-8")):
        verdict = client(case["command"], arguments_of(folder, case))
        outcome = "the same" if verdict.code == case["code"] else "other"
        outcome = UNCHECKED if verdict.code == UNCHECKED else outcome
        counts[f"{case['command']}: {outcome}"] += 1
        if outcome != "the same":
            told = f"{verdict.code} ({verdict.why[:160]}), not {case['code']}"
            lines.append(f"{case['arguments'][0]} {case['name']}: {told}")
    return lines, counts


if __name__ == "__main__":
    found, counted = differences(Path(sys.argv[1]), process(sys.argv[2:]))
    sys.stdout.write("\n".join([*found, *(f"{count} {what}" for what, count in sorted(counted.items()))]) + "\n")
    sys.exit(1 if any(UNCHECKED not in line for line in found) else 0)
