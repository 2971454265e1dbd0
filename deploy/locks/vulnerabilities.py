"""A check of a lock's packages for known vulnerabilities, as pip-audit knows them: `make audit-dependencies`.

pip-audit counts what it could not ask about as well: here that is a failure, and no answer is no good news.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LOCKS = Path(__file__).parent
NONE, FOUND, NOT_ASKED = 0, 1, 2
SECONDS = 600.0


def judged(name: str, report: dict[str, Any]) -> tuple[int, list[str]]:
    """The exit code for a report of pip-audit on a lock, and what to say."""
    packages: list[dict[str, Any]] = report["dependencies"]
    skipped = sorted(each["name"] for each in packages if "skip_reason" in each)
    found = [
        f"{name}: {each['name']} {each['version']} has {vulnerability['id']}; "
        + (
            f"mended in {', '.join(vulnerability['fix_versions'])}"
            if vulnerability["fix_versions"]
            else "not mended yet"
        )
        for each in packages
        for vulnerability in each.get("vulns", [])
    ]
    if skipped or not packages:
        found.append(
            f"{name}: {len(skipped)} of {len(packages)} packages could not be asked about"
            + (f" ({', '.join(skipped[:3])}, …)" if skipped else "")
            + "; the service of vulnerabilities was not reached, so ask again where it is."
        )
        return NOT_ASKED, found
    return (FOUND, found) if found else (NONE, [f"{name}: {len(packages)} packages, no known vulnerability"])


def audited(lock: Path) -> tuple[int, list[str]]:
    """The exit code for a lock, and what to say."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = ["-r", str(lock), "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
        command = [sys.executable, "-m", "pip_audit", *words, "--format", "json", "--output", str(report)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return NOT_ASKED, [f"{lock.stem}: pip-audit did not end within {SECONDS:g} s."]
        if not report.exists():
            last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
            return NOT_ASKED, [f"{lock.stem}: pip-audit failed, so nothing is known: {last[:300]}"]
        return judged(lock.stem, json.loads(report.read_text(encoding="utf-8")))


if __name__ == "__main__":
    codes = []
    for given in sys.argv[1:]:
        code, said = audited(LOCKS / f"{given}.txt")
        codes.append(code)
        print("\n".join(said), file=sys.stderr if code else sys.stdout)
    sys.exit(max(codes, default=NONE))
