"""Spin on `protocol.pml`: what one exhaustive run says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("protocol.pml")
DEEPEST = 100_000  # steps of one path; the deepest of a correct model has less than a hundred
INCOMPLETE = re.compile(
    r"max search depth too small|Search not completed|out of memory|MEMLIM|stack overflow|interrupted"
)


@dataclass(frozen=True)
class Verdict:
    """`failure` names the assertion that fails, "cycle" for a work that never ends, or nothing."""

    failure: str
    states: int
    depth: int
    seconds: float


class SpinFailed(Exception):
    """No verdict: the model is wrong, or too large."""


def installed() -> None:
    """Skip, with the reason, where there is no Spin or no compiler."""
    for program in ("spin", "gcc"):
        if shutil.which(program) is None:
            if os.environ.get("CI"):
                pytest.fail(f"{program} is not installed")
            pytest.skip(f"there is no {program} here; apt-get install spin gcc libc6-dev, and this test runs")


def verdict(folder: Path, *options: str, ends: bool = False, fair: bool = False, quick: bool = False) -> Verdict:
    """Search all states of the model with the macros `options`. `ends`: whether work ends, instead of what must hold in
    each state; `fair`: only where each process goes on that can; `quick`: where the first failure is soon found."""
    shutil.copy(MODEL, folder)  # a trace.h is looked for beside it
    _run(folder, "spin", "-a", *options, MODEL.name)
    kind = ["-DNFAIR=3"] if ends else ["-DSAFETY", "-DNOCLAIM"]
    _run(folder, "gcc", "-w", "-O0" if quick else "-O1", "-DVECTORSZ=4096", *kind, "-o", "pan", "pan.c")
    text = _run(folder, "./pan", f"-m{DEEPEST}", "-n", *(["-a"] if ends else []), *(["-f"] if fair else []))
    failure = re.search(r"assertion violated (\w+)|(acceptance cycle) \(", text)
    counts = re.search(r"depth reached (\d+), errors: (\d+)\s+([\d.e+]+) states, stored", text)
    # the search ends at the first failure
    if counts is None or int(counts[2]) != bool(failure) or (failure is None and INCOMPLETE.search(text)):
        raise SpinFailed(text)
    seconds = re.search(r"elapsed time ([\d.]+) seconds", text)
    name = "" if failure is None else failure[1] or "cycle"
    return Verdict(name, int(float(counts[3])), int(counts[1]), float(seconds[1]) if seconds else 0.0)


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode and command[0] != "./pan":
        raise SpinFailed(done.stdout + done.stderr)
    return done.stdout + done.stderr
