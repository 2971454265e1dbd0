"""Messages under attack for long: every bit of the manifest, 10⁴ flips through intake, all signed lies, fuzzing.

A finding of the fuzzers is kept below `results/found` (not in the repository): read it, name it, and put it into
`tests/wire/corpus`.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from features_party.bootstrap import Services
from label_dp.documents.canonical import digest
from label_dp.errors import LabelDPError
from tests.soak.conftest import RESULTS, Scale
from tests.soak.report import Report
from tests.support import malice
from tests.support import tampering as t
from tests.support.contained import contained
from tests.support.fuzz_targets import CORPUS, Targets, corpus, mutated
from tests.support.messages import Sender, features_party

NAMES = sorted(path.name for path in CORPUS.iterdir())
FLIPS = 10_000
MOST_MORE = 1024  # MiB that all signed lies together may add to the address space
GUIDED = importlib.util.find_spec("atheris") is not None
PROGRAM = Path(__file__).parents[2]


def _judge(report: Report, tried: int, passed: list[str], limit: str) -> None:
    report.row(tried, tried - len(passed), limit)
    assert not passed, passed[:10]


def test_every_bit_of_the_manifest(scale: Scale, report: Report, tmp_path: Path) -> None:
    sender = Sender()
    whole = t.send(sender, tmp_path / "whole")
    tried, passed = t.survivors(t.envelope_bits(whole), whole, tmp_path / "copy", sender.key.public)
    _judge(report, tried, passed, "0 taken: each bit of the envelope, and of the payload in it")


def test_flips_in_the_files(scale: Scale, report: Report, tmp_path: Path) -> None:
    sender = Sender()
    whole = t.send(sender, tmp_path / "whole")
    flips = t.file_flips(whole, FLIPS, random.Random(scale.seed))
    tried, passed = t.survivors(flips, whole, tmp_path / "copy", sender.key.public)
    _judge(report, tried, passed, "0 taken: bits of the Parquet files")


def _accepted(services: Services, path: Path, sender: Sender) -> bool:
    try:
        return services.messages.accept(path, sender.key.public).fresh
    except LabelDPError:
        return False


def test_replays_over_restarts(scale: Scale, report: Report, tmp_path: Path) -> None:
    """Messages of several releases and batches, some drawn again, sent in any order over many restarts."""
    sender, rng, end = Sender(), random.Random(scale.seed), time.monotonic() + min(scale.seconds, 60)
    sent = [
        t.send(
            sender,
            tmp_path / f"{release}-{draw}",
            10 * release + draw,
            release=f"rel_{release}",
            epsilon_lifetime="12",
        )
        for release in range(6)
        for draw in range(3)
    ]
    fresh: list[str] = []
    tried = restarts = 0
    while time.monotonic() < end:
        services = features_party(tmp_path / "home")
        for path in rng.choices(sent, k=40):
            tried += 1
            if _accepted(services, path, sender):
                fresh.append(path.name.split("-")[0])
        services.close()
        restarts += 1
    again = sorted({release for release in fresh if fresh.count(release) > 1})
    _judge(report, tried, again, f"each release once, whichever draw came first; {restarts} restarts")


def test_signed_lies(scale: Scale, report: Report, tmp_path: Path) -> None:
    sender, folder = Sender(), tmp_path / "all"
    good = malice.honest(sender, folder / "aaa")
    names = malice.sign_all(good, malice.hostile_messages(good), "message", sender.key, folder)
    names |= malice.sign_all(good, malice.hostile_priors(good), "prior", sender.key, folder)
    documents = malice.sign_documents(good, sender.key, folder)
    status, told = contained(folder, sender.public_key(tmp_path), seconds=900)
    assert status == 0, f"the reader ended with {status}"
    wrong = [
        f"{names[x.name]}: {x.outcome}" for x in told if x.name in names and x.outcome.startswith(("taken", "esc"))
    ]
    wrong += [f"{documents[x.name]}: {x.outcome}" for x in told if x.name in documents and x.outcome.startswith("esc")]
    grown, slowest = sum(x.grown for x in told), max(x.seconds for x in told)
    limit = f"none taken; address space +{grown} of {MOST_MORE} MiB; slowest {slowest:.1f} s"
    _judge(report, len(names) + len(documents), wrong, limit)
    assert len(told) == 1 + len(names) + len(documents)
    assert grown < MOST_MORE


def _found(name: str, data: bytes) -> Path:
    folder = RESULTS / "found"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{digest(data)[:16]}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_seeded_mutations(name: str, scale: Scale, report: Report, tmp_path: Path) -> None:
    targets, kept, rng = Targets(tmp_path), corpus(name), random.Random(f"{name}-{scale.seed}")
    end, tried, taken = time.monotonic() + scale.seconds / len(NAMES), 0, 0
    wrong: list[str] = []
    while time.monotonic() < end:
        data = mutated(rng.choice(kept), rng, kept)
        tried += 1
        try:
            taken += targets.run(name, data)
        except Exception as error:
            wrong.append(f"{type(error).__name__} ({_found(name, data).name}): {error}")
    memory = pa.default_memory_pool().max_memory() >> 20
    _judge(report, tried, wrong, f"typed refusals only; {taken:,} still valid; Arrow's most so far {memory} MiB")


@pytest.mark.parametrize("name", NAMES)
def test_guided_by_coverage(name: str, scale: Scale, report: Report, tmp_path: Path) -> None:
    if not GUIDED:
        report.row(0, 0, "atheris is not installed: nothing was guided by coverage")
        pytest.skip("atheris is not installed")
    seconds = max(5, int(scale.seconds / len(NAMES)))
    (tmp_path / "new").mkdir()
    found = RESULTS / "found"
    found.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={seconds}", f"-seed={scale.seed % (1 << 31)}", "-max_len=65536", "-timeout=30"]
    # the limit is above what this process has had at most, which its children inherit as theirs
    options += [
        f"-rss_limit_mb={2048 + (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)}",
        f"-artifact_prefix={found}/{name}-",
        str(tmp_path / "new"),
        str(CORPUS / name),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak.fuzz_guided", name, *options],
        cwd=PROGRAM,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=seconds + 120,
        check=False,
    )
    runs = [int(n) for n in re.findall(r"^#(\d+)", done.stderr, re.MULTILINE)]
    covered = re.findall(r"cov: (\d+)", done.stderr)
    wrong = [] if done.returncode == 0 else [done.stderr[-2000:]]
    _judge(report, max(runs, default=0), wrong, f"typed refusals only; {covered[-1] if covered else 0} edges covered")
