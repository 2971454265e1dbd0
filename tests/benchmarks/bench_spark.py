"""What a label costs on Spark: CPU between two sizes, of seal, draw and join, beside this process in the same run; and
a training of the model `trees`, all of it.

A run is a child process with all that it starts, on two cores. What starting costs is in both sizes and leaves with the
difference. Needs PySpark and Java; without them it says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from label_dp.errors import InvalidSettings
from label_dp.spark.cluster import prepare_spark
from tests.benchmarks.bench_join import write_files
from tests.benchmarks.bench_privatize import LIMITS, write_labels
from tests.benchmarks.lines import Line

SMALL, LARGE = 4_000_000, 10_000_000
JOINED = (1_000_000, 10_000_000)
TRAINED = 1_000_000
WANTED = 1.5  # times as long as this process takes
# CPU of a step: of this process, of what it has waited for, and of those that Spark's JVM and its daemon still run
CPU = """
import json, os, sys
from pathlib import Path

def below(pid, parents):
    return [pid, *(p for child in parents.get(pid, []) for p in below(child, parents))]

def cpu():
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        parents.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    return sum(ticks[p] for p in below(os.getpid(), parents)) / os.sysconf("SC_CLK_TCK")

took = {}
"""
PROGRAM = (
    CPU
    + """
from labels_party.bootstrap import bootstrap
from labels_party.files import jobs
from labels_party.files.jobs import LabelsFile
from labels_party.files.inputs import population_of, request_of
from labels_party.files.message import Message
from label_dp.schemas.population import Population
from label_dp.schemas.release import Release

source, home, engine = sys.argv[1:]
party = bootstrap(chosen={"home": Path(home), "engine": engine, "spark_master": "local[2]"})
rules = Population(name="p", label="revenue", domain="0:400", lifetime_epsilon="1")
asked = Release(epsilon="1", mechanism="rr-on-bins", prior="uniform")
population = population_of(rules)
errand = Message(request_of(party, population, asked), Path(home) / "message.parquet")
before = cpu()
label_file = LabelsFile(source, "click", population)
batch, population, *_ = jobs._sealed(party, label_file, errand, lambda *_: None, lambda _: None)
took["seal"] = cpu() - before
name = errand.start(party, batch, population)
before = cpu()
jobs.finish(party, name, jobs.RELEASES)
took["draw"] = cpu() - before
party.close()
print(json.dumps(took))
"""
)
# a session is started before, and there is no estimate of the error: Spark makes none
FEATURES = (
    CPU
    + """
from contextlib import contextmanager
from features_party.spark import files as on_spark
from features_party.bootstrap import bootstrap
from features_party.files.jobs import Files, join_files, train_files
from features_party.models import trainer
from features_party.settings import Settings
from label_dp.documents.signing import VerifyingKey
from label_dp.schemas.training import Learning

folder, home, engine, step = Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]
services = bootstrap(Settings(home=home, threads=2))
key = VerifyingKey.load(folder / "labels-signing.pub")
named, features, out = [folder / "message.parquet"], folder / "features.parquet", home / step
quiet, learning = lambda *_: None, Learning(model="trees")
trainer._estimable = lambda *_: False
files = Files(named, key, features, "click_id", out)
if engine == "spark":
    start = on_spark.started
    @contextmanager
    def started(master):
        with start(master) as cluster:
            cluster.parallelism
            begun.append(cpu())
            yield cluster
            took[step] = cpu() - begun[0]
    begun, on_spark.started = [], started
    if step == "join":
        on_spark.join_on_spark(services, files, "local[2]", "auto", quiet)
    else:
        on_spark.train_from_files(services, files, "spark", "local[2]", learning, quiet)
else:
    before = cpu()
    if step == "join":
        join_files(services, files, "auto", quiet)
    else:
        train_files(services, files, learning, quiet)
    took[step] = cpu() - before
print(json.dumps(took))
"""
)


def lines(trained: int = TRAINED) -> list[Line]:
    """Microseconds of CPU for each further label; of a training on so many rows, seconds."""
    small, large = SMALL, LARGE
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kernels = {"NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", str(folder / "kernels"))}
        for n in (small, large):
            write_labels(folder / f"{n}.parquet", n)

        def run(n: int, engine: str, home: str) -> dict[str, float]:
            command = [sys.executable, "-c", PROGRAM, str(folder / f"{n}.parquet"), str(folder / home), engine]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | kernels)
            return dict(json.loads(done.stdout.splitlines()[-1]))

        try:
            prepare_spark()
        except InvalidSettings as error:
            return [Line("not measured", 0.0, "", note=error.detail)]
        found = []
        marginal = {}
        for engine in ("local", "spark"):
            run(small, engine, f"{engine}-warm")  # kernels are compiled
            a, b = (run(n, engine, f"{engine}-{n}") for n in (small, large))
            marginal[engine] = {step: (b[step] - a[step]) / (large - small) * 1e6 for step in a}
        for step, wanted in (("seal", 2.0), ("draw", 0.5)):
            ours, theirs = marginal["spark"][step], marginal["local"][step]
            beside = f"this process ({theirs:.2f} µs)"
            found.append(
                Line(f"{step}, CPU of a further label", ours, "µs", beside, ours / theirs, wanted, note=LIMITS)
            )
        return found + features_lines(folder, kernels, trained)


def features_lines(folder: Path, kernels: dict[str, str], trained: int, joined: tuple[int, int] = JOINED) -> list[Line]:
    """The features party's steps on messages with 20 feature columns."""

    def run(n: int, engine: str, step: str) -> float:
        given = folder / f"features-{n}"
        if not given.exists():
            given.mkdir()
            write_files(given, n)
        with tempfile.TemporaryDirectory(dir=folder) as home:
            command = [sys.executable, "-c", FEATURES, str(given), home, engine, step]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | kernels)
        return float(json.loads(done.stdout.splitlines()[-1])[step])

    small, large = joined
    further = {e: (run(large, e, "join") - run(small, e, "join")) / (large - small) * 1e6 for e in ("spark", "local")}
    whole = {engine: run(trained, engine, "train") for engine in ("spark", "local")}
    beside, ours = f"this process ({further['local']:.2f} µs)", further["spark"]
    there, took = f"this process ({whole['local']:.0f} s)", whole["spark"]
    return [
        Line(
            "join, CPU of a further row",
            ours,
            "µs",
            beside,
            ours / further["local"],
            wanted_ratio=WANTED,
            note=f"20 features, {small:,} to {large:,} rows",
        ),
        Line(
            "train trees, CPU",
            took,
            "s",
            there,
            took / whole["local"],
            wanted_ratio=WANTED,
            note=f"20 features, {trained:,} rows, two workers",
        ),
    ]
