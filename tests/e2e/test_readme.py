"""Every command of the README is run, and its Python too, on what a demo with few clicks left."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.demo.services import Service
from tests.support.demo import Told

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


@pytest.fixture(scope="module")
def checkout(told: Told, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder like a checkout after `make demo`: this environment as .venv, a copy of a small demo's output."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(BIN)
    (folder / "deploy").symlink_to(ROOT / "deploy")
    shutil.copytree(told.out, folder / "demo-output")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_every_shell_command_works_as_written(checkout: Path) -> None:
    (make, *rest) = blocks("bash")
    script = "\n".join(rest).replace(". .venv/bin/activate\n", f'PATH="{BIN}:$PATH"\n')
    assert script.count("labels-party") + script.count("features-party") >= 30
    assert script.count("curl") + script.count("owner ") + script.count("ingest ") + script.count("trainer ") >= 20
    # a command that fails must not leave services that hold the output open
    script = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + script
    labels, features = free_port(), free_port()
    script = script.replace("8001", labels).replace("8002", features).replace("_THREADS=2", "_THREADS=1")
    environment = dict(os.environ) | {
        "FEATURES_PARTY_THREADS": "1",
        "LABELS_PARTY_PORT": labels,
        "FEATURES_PARTY_PORT": features,
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for told in ("Privatized message", '"mse"', "events verified", "succeeded", "VERIFIED", "no longer count"):
        assert told in done.stdout, told
    page = (checkout / "demo-output" / "try" / "statement.html").read_text(encoding="utf-8")
    assert "orders" in page
    assert make.split() == ["make", "demo", "make", "test"]


def test_the_two_make_targets_exist_and_others_named_in_the_text() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`make (\w+)", README)) | {"demo", "test"}:
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_the_ten_lines_of_python_work(tmp_path: Path) -> None:
    code, _ = blocks("python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    service = Service("labels-party", "LABELS_PARTY_", tmp_path / "lp", tmp_path / "log", tmp_path / "numba")
    key = service.run("apikey", "create", "--role", "owner").strip()
    service.launch()
    try:
        service.await_ready()
        program = f"URL, OWNER_KEY = {service.url!r}, {key!r}\n{code}"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    finally:
        service.stop()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["published", "1", "1"]


def test_the_publishers_python_works(checkout: Path, tmp_path: Path) -> None:
    _, code = blocks("python")
    demo = checkout / "demo-output"
    names = {
        "MESSAGE": demo / "message.parquet",
        "FEATURES": demo / "clicks" / "features.parquet",
        "LABELS_KEY": demo / "labels-party.pub",
    }
    given = "\n".join(f"{name} = {str(path)!r}" for name, path in names.items())
    environment = dict(os.environ) | {"FEATURES_PARTY_HOME": str(tmp_path), "FEATURES_PARTY_THREADS": "1"}
    program = [sys.executable, "-c", f"{given}\n{code}"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "noise_variance" in done.stdout


def test_links_lead_somewhere() -> None:
    for path in [
        ROOT / "README.md",
        *(ROOT / room / "README.md" for room in ("labels_party", "features_party", "shared", "deploy")),
    ]:
        for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / link).exists(), f"{path.name}: {link}"


def test_quoted_messages_exist_in_the_code() -> None:
    """A message in the troubleshooting table that nobody says any more would mislead."""
    sources = "".join(
        p.read_text(encoding="utf-8")
        for room in ("labels_party", "features_party", "shared")
        for p in (ROOT / room).rglob("*.py")
    ) + (ROOT / "Makefile").read_text(encoding="utf-8")
    sources = re.sub(r'"\s*\n\s*f?"', "", sources)
    table = README.split("## Troubleshooting")[1].split("## For those")[0]
    for quoted in re.findall(r"^\| `([^`]+)`", table, re.M):
        for piece in (part.strip() for part in quoted.split("…")):
            assert piece in sources, piece
