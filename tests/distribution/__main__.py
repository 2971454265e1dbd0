"""`make dist`: builds the packages of a version, and tests each extra alone in an environment of its own.

A line for each environment: the seconds that it took, its packages and their size, what was done in it. Where one does
not do its part, what the command printed is shown, and the exit code is 1.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen
from zipfile import ZipFile

from deploy.packages import DIST, VERIFIER, build, build_all, environment
from tests.support.serving import free_port

PLAIN = Path(__file__).with_name("plain.py")
DAYS, ROWS = ("monday", "tuesday"), 600
MISSING = "error: {0}-party needs the extra '{0}': pip install 'label-dp-service[{0}]'.\n"
LABELS = "--id-column click --label-column eur --domain 0:100 --missing-label 0 --population shop --budget 3"
FEATURES = "--features features.csv --id-column click"
VERIFIED = "VERIFIED\n"
START_SECONDS = 60.0


@dataclass(frozen=True)
class Bench:
    """A folder for environments, homes of both parties and their files; the commands of an environment run in it."""

    folder: Path
    wheel: Path

    @property
    def files(self) -> Path:
        return self.folder / "files"

    def key(self, party: str) -> Path:
        """The public key of a party."""
        return self.folder / party / "keys" / "signing.pub"

    def environ(self) -> dict[str, str]:
        """As of a user: a home for each party, and nothing of this project on a path."""
        homes = {f"{party.upper()}_PARTY_HOME": str(self.folder / party) for party in ("labels", "features")}
        own = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return own | homes | {"FEATURES_PARTY_THREADS": "1"}

    def install(self, name: str, *requirements: str) -> str:
        """Make the environment `name`; its packages and its size."""
        environment(self.folder / name, *requirements)
        files = [path for path in (self.folder / name).rglob("*") if path.is_file() and not path.is_symlink()]
        packages = sum(path.name == "METADATA" for path in files)
        return f"{packages} packages, {sum(path.stat().st_size for path in files) / 1e6:.0f} MB"

    def install_extra(self, extra: str) -> str:
        return self.install(extra, f"label-dp-service[{extra}] @ {self.wheel.as_uri()}")

    def run(self, name: str, command: str, code: int = 0) -> str:
        """Run a command in the environment `name`. Returns what it printed, on stderr if it had to fail with `code`."""
        program, *words = command.split()
        done = subprocess.run(
            [self.folder / name / "bin" / program, *words],
            cwd=self.files, env=self.environ(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != code:
            raise SystemExit(f"{name}: {command}\nended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stderr if code else done.stdout

    @contextmanager
    def serve(self, name: str, party: str) -> Iterator[str]:
        """The URL of a party's service, which runs in the environment `name`."""
        port = free_port()
        command = [self.folder / name / "bin" / f"{party}-party", "serve", "--port", port]
        with (self.folder / f"{party}.log").open("w") as log:
            service = subprocess.Popen(command, cwd=self.files, env=self.environ(), stdout=log, stderr=log)
        try:
            await_ready(f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            service.terminate()
            service.wait()


def await_ready(url: str) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            with urlopen(f"{url}/readyz"):
                return
        except URLError:
            if time.monotonic() > until:
                raise SystemExit(f"no service answered at {url}") from None
            time.sleep(0.1)


def write_data(folder: Path) -> None:
    """Clicks of two days: sales that depend on two features."""
    folder.mkdir()
    rng = random.Random(7)
    features = ["click,hour,device"]
    for day in DAYS:
        sales = ["click,eur"]
        for row in range(ROWS):
            hour, device = rng.randrange(24), rng.choice(("phone", "desk"))
            features.append(f"{day}-{row},{hour},{device}")
            sales.append(f"{day}-{row},{min(100, hour * 2 + (40 if device == 'desk' else 0))}")
        (folder / f"{day}.csv").write_text("\n".join(sales) + "\n")
    (folder / "features.csv").write_text("\n".join(features) + "\n")


def lacks(bench: Bench, name: str, command: str) -> None:
    """The command must say which extra is missing, in one sentence."""
    party = command.split("-")[0]
    sentence = bench.run(name, command, code=2)
    assert sentence == MISSING.format(party), sentence


def privatize(bench: Bench, name: str, day: str) -> str:
    """Returns the release."""
    words = f"privatize --labels {day}.csv {LABELS} --epsilon 1 --out {day}.parquet --json"
    return str(json.loads(bench.run(name, f"labels-party {words}"))["release"])


def train(bench: Bench, name: str, day: str) -> None:
    bench.run(name, f"features-party train --message {day}.parquet {FEATURES} --model trees --out {name}-model")
    assert (bench.files / f"{name}-model" / "card.md").exists()


def try_labels(bench: Bench) -> str:
    size = bench.install_extra("labels")
    privatize(bench, "labels", "monday")
    median = f"labels-party median --labels monday.csv {LABELS} --epsilon 0.5 --additional-release --out median.json"
    bench.run("labels", median)
    lacks(bench, "labels", f"features-party train --message monday.parquet {FEATURES} --out refused")
    return f"{size}; privatized {ROWS} labels, a median"


def try_features(bench: Bench) -> str:
    size = bench.install_extra("features")
    bench.run("features", f"features-party pin-key {bench.key('labels')}")
    bench.run("features", "features-party verify monday.parquet")
    bench.run("features", f"features-party join --message monday.parquet {FEATURES} --out joined.parquet")
    train(bench, "features", "monday")
    lacks(bench, "features", f"labels-party privatize --labels monday.csv {LABELS} --epsilon 1 --out refused.parquet")
    return f"{size}; verified, joined, trained"


def try_all(bench: Bench) -> str:
    """Both halves; over HTTP the one pulls from the other, which keeps its receipt."""
    size = bench.install_extra("all")
    release = privatize(bench, "all", "tuesday")
    made_for = f"--role features --audience features-party --receipt-key {bench.key('features')}"
    token = bench.files / "token"
    token.touch(mode=0o600)
    token.write_text(bench.run("all", f"labels-party apikey create {made_for}"))
    with bench.serve("all", "labels") as url:
        words = f"--url {url} --release {release} --out pulled.parquet --api-key-file {token} --json"
        receipts = json.loads(bench.run("all", f"features-party pull {words}"))["receipts"]
        assert receipts["delivered"], receipts
    train(bench, "all", "pulled")
    return f"{size}; privatized, served, pulled, trained"


def try_plain(bench: Bench) -> str:
    """With the services of the environment `all`, of which the clients of the plain one ask."""
    size = bench.install("plain", str(bench.wheel))
    verified = bench.run("plain", f"features-party verify monday.parquet --labels-key {bench.key('labels')}")
    assert "Verified message" in verified, verified
    with ExitStack() as stack:
        services = []
        for party, role in (("labels", "owner"), ("features", "auditor")):
            url = stack.enter_context(bench.serve("all", party))
            services += [url, bench.run("all", f"{party}-party apikey create --role {role}").strip()]
        bench.run("plain", f"python {PLAIN} monday.parquet {bench.key('labels')} joined.parquet {' '.join(services)}")
    lacks(bench, "plain", f"labels-party privatize --labels monday.csv {LABELS} --epsilon 1 --out refused.parquet")
    lacks(bench, "plain", f"features-party train --message monday.parquet {FEATURES} --out refused")
    assert "privatize" in bench.run("plain", "labels-party --help")
    return f"{size}; verified, corrected, called both services"


def try_verifier(bench: Bench) -> str:
    """The one file, beside `cryptography` alone."""
    size = bench.install("verifier", "cryptography")
    file, theirs = DIST / VERIFIER, bench.key("features")
    for party in ("labels", "features"):
        bench.run("all", f"{party}-party audit export --out {party}.dsse.json")
    against = f"audit labels.dsse.json --against features.dsse.json --against-key {theirs}"
    for words in ("message monday.parquet", "answer median.json", against):
        said = bench.run("verifier", f"python {file} {words} --key {bench.key('labels')}")
        assert said.endswith(VERIFIED), said
    assert "receipts are the same at both parties" in said, said
    said = bench.run("verifier", f"python {file} audit features.dsse.json --key {theirs}")
    assert said.endswith(VERIFIED), said
    return f"{size}; {file.name} checked a message, an answer and both audit exports"


def try_sdist(bench: Bench, builder: Path) -> str:
    """A wheel from the sdist is the wheel."""
    (sdist,) = DIST.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(bench.folder / "sdist", filter="data")
    (project,) = (bench.folder / "sdist").iterdir()
    build(builder, project, "wheel")
    (again,) = (project / "dist").glob("*.whl")
    assert contents(again) == contents(bench.wheel)
    return f"the same wheel of {len(contents(again))} files"


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="label-dp-dist-") as name:
        folder, begin = Path(name), time.monotonic()
        builder = build_all(folder / "build")
        sizes = ", ".join(f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in sorted(DIST.glob("*label_dp*")))
        say("build", begin, sizes)
        bench = Bench(folder, next(DIST.glob("*.whl")))
        write_data(bench.files)
        for part in (try_labels, try_features, try_all, try_plain, try_verifier):
            begin = time.monotonic()
            say(part.__name__.removeprefix("try_"), begin, part(bench))
        begin = time.monotonic()
        say("sdist", begin, try_sdist(bench, builder))


def say(part: str, begin: float, text: str) -> None:
    print(f"{part:9} {time.monotonic() - begin:5.1f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
