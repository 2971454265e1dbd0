"""Both services as processes: the console commands of this environment, on free loopback ports, always stopped."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from shared.errors import Unavailable

START_SECONDS = 60.0
STOP_SECONDS = 15.0
LOOPBACK = "127.0.0.1"
COMMAND_SECONDS = 60.0
# training threads that spin while they wait are many times slower where two parties share a few cores
SHARED_CORES = {"OMP_WAIT_POLICY": "PASSIVE"}


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


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
        command = [str(self._program), *arguments]
        done = subprocess.run(
            command, env=self._environment(), capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
        if done.returncode != 0:
            raise Unavailable(f"'{self.command} {arguments[0]}' failed: {_last_line(done.stderr)}")
        return done.stdout

    def launch(self) -> None:
        """Start `serve` on a free port; `await_ready` waits for it."""
        port = free_port()
        self.url = f"http://{LOOPBACK}:{port}"
        self.log.parent.mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._program), "serve", "--host", LOOPBACK, "--port", str(port)],
                env=self._environment(),
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
        with httpx.Client(trust_env=False, timeout=5) as http:
            while time.monotonic() < end:
                if self._process.poll() is not None:
                    reason = _last_line(self.log.read_text(encoding="utf-8", errors="replace"))
                    raise Unavailable(f"'{self.command} serve' ended at once ({reason}); its log is {self.log}.")
                with contextlib.suppress(httpx.TransportError):
                    if http.get(f"{self.url}/readyz").is_success:
                        return
                time.sleep(0.05)
        raise Unavailable(f"'{self.command} serve' was not ready after {START_SECONDS:g} s; its log is {self.log}.")

    def stop(self) -> None:
        """End the process, kindly first. Safe to call at any time."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    @property
    def _program(self) -> Path:
        return Path(sys.executable).with_name(self.command)

    def _environment(self) -> dict[str, str]:
        """The visitor's own settings of either party must not lead the demo to their real home or database."""
        prefixes = ("LABELS_PARTY_", "FEATURES_PARTY_")
        kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(prefixes)}
        general = {"NUMBA_CACHE_DIR": str(self.numba_cache)} | dict.fromkeys(("NO_PROXY", "no_proxy"), LOOPBACK)
        settings = {"HOME": str(self.home)} | self.environment
        return kept | general | SHARED_CORES | {self.prefix + name: value for name, value in settings.items()}


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "it said nothing"
