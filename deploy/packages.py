"""Packages of a version in `dist/`: wheel, sdist, and the standalone verifier as one file. `make dist` tests them.

The same sources give the same bytes: hatchling writes no times, and the verifier's archive has none.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile, ZipInfo

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
VERIFIER, PACKAGE = "verify_label_dp.pyz", "verify_label_dp"
FOLDER = ROOT / "deploy" / "verify_standalone"
LINE = b"#!/usr/bin/env python3\n"
MAIN = f"""import sys
from importlib.util import find_spec

if find_spec("cryptography") is None:
    sys.exit("error: this verifier needs the package cryptography: python3 -m pip install cryptography")
from {PACKAGE}.command import main

sys.exit(main())
"""


def write_verifier(path: Path) -> None:
    """Write the standalone verifier as one file that Python runs, uncompressed: zlib's bytes differ by version."""
    files = {f"{PACKAGE}/{source.name}": source.read_text(encoding="utf-8") for source in sorted(FOLDER.glob("*.py"))}
    with path.open("wb") as file:
        file.write(LINE)
        with ZipFile(file, "w") as archive:
            for name, text in {"__main__.py": MAIN, **files}.items():
                entry = ZipInfo(name)  # of 1980
                entry.create_system, entry.external_attr = 3, 0o644 << 16
                archive.writestr(entry, text)
    path.chmod(0o755)


def environment(folder: Path, *requirements: str) -> Path:
    """Make an environment with `requirements` and return its Python. By uv, several times as quick as pip; by pip where
    there is no uv, or where it fails."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    quick = [str(uv), "pip", "install", "--quiet", "--python", str(python), *requirements]
    if uv.exists() and _succeeds(quick):
        return python
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *requirements], check=True)
    return python


def _succeeds(command: list[str]) -> bool:
    environ = os.environ | {"UV_SYSTEM_CERTS": "1"}
    return subprocess.run(command, capture_output=True, env=environ, check=False).returncode == 0


def build(python: Path, project: Path, *targets: str) -> None:
    """Build `targets` (wheel, sdist) of the folder of a project into `dist/` below it, by hatchling in `python`'s
    environment."""
    words = [word for target in targets for word in ("--target", target)]
    command = [str(python), "-m", "hatchling", "build", "--directory", "dist", *words]
    subprocess.run(command, cwd=project, check=True, capture_output=True)


def build_all(folder: Path) -> Path:
    """Build wheel, sdist and verifier into `dist/`, with an environment in `folder`, and return its Python."""
    DIST.mkdir(exist_ok=True)
    for outdated in (*DIST.glob("label_dp_service-*"), *DIST.glob(VERIFIER)):
        outdated.unlink()
    python = environment(folder, "--require-hashes", "-r", str(ROOT / "deploy" / "locks" / "build.txt"))
    build(python, ROOT, "wheel", "sdist")
    write_verifier(DIST / VERIFIER)
    return python
