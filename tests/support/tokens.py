"""A SoftHSM token of its own for each test: PKCS#11 without hardware."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PIN, NAME = "4711", "labels"
MODULES = ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so")


def token(folder: Path, name: str = NAME) -> dict[str, str]:
    """Settings of a party with a fresh token; skips where SoftHSM is not installed, and fails on CI, which installs it.

    The library reads its configuration once in a process: all tokens of a process lie in one folder, by name.
    """
    program, module = shutil.which("softhsm2-util"), next((m for m in MODULES if Path(m).exists()), None)
    if program is None or module is None:
        if os.environ.get("CI"):
            pytest.fail("softhsm2 is not installed (apt-get install softhsm2)")
        pytest.skip("softhsm2 is not installed (apt-get install softhsm2)")
    if "SOFTHSM2_CONF" not in os.environ:
        (folder / "tokens").mkdir()
        file = folder / "softhsm2.conf"
        file.write_text(f"directories.tokendir = {folder / 'tokens'}\nobjectstore.backend = file\nlog.level = ERROR\n")
        os.environ["SOFTHSM2_CONF"] = str(file)
    made = ["--init-token", "--free", "--label", name, "--so-pin", "0815", "--pin", PIN]
    subprocess.run([program, *made], check=True, capture_output=True)
    return {"key_service": "pkcs11", "pkcs11_module": module, "pkcs11_token": name, "pkcs11_pin": PIN}
