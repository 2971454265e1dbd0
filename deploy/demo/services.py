"""Both services as processes: the console commands of this environment, on free loopback ports, always stopped."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from deploy.demo.folder import shown, typed
from label_dp.errors import InvalidInput, Unavailable

LOOPBACK = "127.0.0.1"
START_SECONDS, STOP_SECONDS, COMMAND_SECONDS = 60.0, 15.0, 60.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# training threads that spin while they wait are many times slower where two parties share a few cores
SHARED_CORES = {"OMP_WAIT_POLICY": "PASSIVE"}


def secret(keys: Path, name: str) -> str:
    """An API key in a file, as docker-compose.yml makes them. Raises InvalidInput naming the missing file."""
    text = (keys / name).read_text(encoding="utf-8").strip() if (keys / name).is_file() else ""
    if not text:
        raise InvalidInput(f"The key file '{keys / name}' is missing or empty; make the key again.")
    return text


@contextlib.contextmanager
def both(folder: Path) -> Iterator[tuple[Service, Service]]:
    """The labels party and the features party with homes in `folder`, their keys in its `keys`; stopped at the end."""
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    logs, kernels = folder / "logs", folder / ".numba"
    labels = Service("labels-party", "LABELS_PARTY_", folder / "labels-party", logs / "labels-party.log", kernels)
    features = Service(
        "features-party", "FEATURES_PARTY_", folder / "features-party", logs / "features-party.log", kernels
    )

    def key(service: Service, role: str, *more: str) -> str:
        made = service.run("apikey", "create", "--role", role, "--name", f"demo {role}", *more)
        path = keys / f"{role}.key"
        path.touch(mode=0o600)
        path.write_text(made, encoding="utf-8")
        return made.strip()

    try:
        key(labels, "owner")
        key(labels, "ingest")
        shutil.copyfile(labels.home / "keys" / "signing.pub", keys / "labels-party.pub")
        labels.launch()
        features.run("pin-key", str(keys / "labels-party.pub"), "--name", "demo advertiser")
        shutil.copyfile(features.home / "keys" / "signing.pub", keys / "features-party.pub")
        known = ("--audience", "features-party", "--receipt-key", str(keys / "features-party.pub"))
        features.environment["LABELS_API_KEY"] = key(labels, "features", *known)
        features.environment["LABELS_URLS"] = json.dumps([labels.url])
        features.launch()
        key(features, "trainer")
        key(features, "auditor")
        labels.await_ready()
        features.await_ready()
        yield labels, features
    finally:
        for number in SIGNALS:  # a second Ctrl-C must not leave a service behind
            signal.signal(number, signal.SIG_IGN)
        features.stop()
        labels.stop()


@dataclass
class Service:
    """One party's console command with its home; `environment` are settings by name without their prefix."""

    command: str
    prefix: str
    home: Path
    log: Path
    numba_cache: Path
    environment: dict[str, str] = field(default_factory=dict)
    url: str = ""
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def run(self, *arguments: str) -> str:
        """Run a subcommand to its end and return what it printed. Raises Unavailable with its error line."""
        return execute(str(program(self.command)), *arguments, environment=self.settings())

    def typed(self, *arguments: str) -> str:
        """A subcommand as a visitor would type it."""
        return typed(f"{self.prefix}HOME={shown(self.home)}", program(self.command), *arguments)

    def launch(self) -> None:
        """Start `serve` on a free port; `await_ready` waits for it."""
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            port = int(probe.getsockname()[1])
        self.url = f"http://{LOOPBACK}:{port}"
        self.log.parent.mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(program(self.command)), "serve", "--host", LOOPBACK, "--port", str(port)],
                env=self.settings(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C reaches the demo alone, which then stops both parties in order
                start_new_session=True,
            )

    def await_ready(self) -> None:
        """Return once /readyz answers. Raises Unavailable naming the log."""
        assert self._process is not None
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self._process.poll() is not None:
                reason = _last_line(self.log.read_text(encoding="utf-8", errors="replace"))
                raise Unavailable(f"'{self.command} serve' ended at once ({reason}); its log is {self.log}.")
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/readyz", trust_env=False).is_success:
                    return
            time.sleep(0.1)
        raise Unavailable(f"'{self.command} serve' was not ready after {START_SECONDS:g} s; its log is {self.log}.")

    def stop(self) -> None:
        """End the process, kindly first. Safe to call at any time."""
        if self._process is None:
            return
        end(self._process)
        self._process = None

    def settings(self) -> dict[str, str]:
        """The visitor's own settings of either party must not lead the demo to their real home or database."""
        prefixes = ("LABELS_PARTY_", "FEATURES_PARTY_")
        kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(prefixes)}
        general = {"NUMBA_CACHE_DIR": str(self.numba_cache)} | dict.fromkeys(("NO_PROXY", "no_proxy"), LOOPBACK)
        settings = {"HOME": str(self.home)} | self.environment
        return kept | general | SHARED_CORES | {self.prefix + name: value for name, value in settings.items()}


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process, and kill it if it does not end in time."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def execute(*words: str, environment: dict[str, str] | None = None) -> str:
    """Run a command to its end and return what it printed. Raises Unavailable with its error line."""
    name = f"'{Path(words[0]).name} {words[1]}'"
    try:
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{name} did not end within {COMMAND_SECONDS:g} s.") from None
    if done.returncode != 0:
        raise Unavailable(f"{name} failed: {_last_line(done.stderr)}")
    return done.stdout


def program(command: str) -> Path:
    """A console command of this environment."""
    return Path(sys.executable).with_name(command)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "it said nothing"
