"""Docker and Compose as commands; every word of them is in the record of a failure."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

STAND_INS = Path(__file__).with_name("stand_ins.sh")
START_SECONDS = 900.0
PROJECT = "label-dp-images"  # of its own: what somebody keeps in the compose file's is not touched
# build arguments and variables of docker-compose.yml that name the stand-ins
STAND_IN_IMAGES = {"PYTHON_IMAGE": "stand-in/python:3.12-slim", "POSTGRES_IMAGE": "stand-in/postgres:17-alpine"}


class Failed(Exception):
    """A step did not do what it has to."""


@dataclass
class ContainerEngine:
    """An engine that `docker` reaches with `environment`, for the project at `root`."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def variables(self) -> dict[str, str]:
        return os.environ | {"PARTY_CPUS": "1", "COMPOSE_PROJECT_NAME": PROJECT} | self.environment

    def docker(self, *words: str, given: bytes = b"", seconds: float = 600.0) -> str:
        """What a command printed, with `given` to read. Raises Failed with its errors."""
        try:
            done = subprocess.run(
                ["docker", *words],
                cwd=self.root,
                env=self.variables(),
                input=given,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"docker {' '.join(words)} did not end within {seconds:g} s") from None
        if done.returncode:
            raise Failed(f"docker {' '.join(words)[:500]}\n{done.stderr.decode(errors='replace')[-2000:]}")
        return done.stdout.decode(errors="replace")

    def compose(self, *words: str, profile: str | None = None, given: bytes = b"") -> str:
        """A command of Compose. Raises Failed."""
        profiles = ("--profile", profile) if profile else ()
        return self.docker("compose", "--progress", "quiet", *profiles, *words, given=given)

    def demo(self, *words: str) -> str:
        """Words run in a new container of the demo. Raises Failed."""
        return self.compose("run", "--rm", "-T", "demo", *words, profile="demo")


@contextlib.contextmanager
def stand_ins(root: Path, folder: Path) -> Iterator[ContainerEngine]:
    """An engine of our own with base images from Debian's packages, for a machine that reaches no image registry.

    It ends with the block; `folder` keeps what it made. Raises Failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ready").unlink(missing_ok=True)
    with (folder / "stand_ins.log").open("wb") as log:
        process = subprocess.Popen([str(STAND_INS), str(folder)], stdout=log, stderr=log)
        try:
            end = time.monotonic() + START_SECONDS
            while not (folder / "ready").exists():
                if process.poll() is not None or time.monotonic() > end:
                    raise Failed(f"the stand-ins could not be made; see {folder}/stand_ins.log and engine.log")
                time.sleep(0.5)
            at = {"DOCKER_HOST": f"unix://{folder}/engine.sock", "DOCKER_CONFIG": str(folder / "config")}
            yield ContainerEngine(root, at | STAND_IN_IMAGES)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
