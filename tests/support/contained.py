"""A features party in a process of its own that reads messages of a malicious labels party, while its memory is
measured: `python -m tests.support.contained FOLDER KEY PLANTED`.

Address space is what is measured: memory that a decoder reserves and never touches counts. It is limited, too, but far
enough that a wrongly believed size of 2 GB is had and seen, not refused by the system and then taken for our refusal.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from features_party.receive import accepted
from features_party.receive.accepted import AcceptedMessage
from label_dp.documents import rows as parquet
from label_dp.documents.bundle import verify
from label_dp.documents.canonical import digest
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import LabelDPError

MIB = 1 << 20
MOST_MORE = 5 << 30


@dataclass(frozen=True)
class Told:
    """What became of one message: `outcome` is `taken`, `as the honest one` (a lie that changes nothing that is read),
    the code of a typed refusal, or what escaped. MiB, seconds."""

    name: str
    outcome: str
    grown: int
    resident: int
    seconds: float


def contained(folder: Path, key: Path, planted: str = "", seconds: float = 300) -> tuple[int, list[Told]]:
    """(exit status, what became of each message in `folder`, by name). The first is read twice, to warm up."""
    environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.support.contained", folder, key, planted]
    done = subprocess.run(
        [str(part) for part in command], env=environment, stdout=subprocess.PIPE, timeout=seconds, check=False
    )
    return done.returncode, [Told(**json.loads(line)) for line in done.stdout.splitlines()]


def _memory(field: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(field + ":")[1].split()[0]) // 1024


def _read(path: Path, key: VerifyingKey) -> tuple[str, Any]:
    try:
        found = verify(path, key, "features-party")
        message = AcceptedMessage(found.manifest, found.digest, path, fresh=True)
        prior = message.prior()
        return "taken", (message.rows().to_pydict(), None if prior is None else digest(prior.tobytes()))
    except LabelDPError as refusal:
        return refusal.code, None
    except Exception as error:
        return f"escaped: {type(error).__name__}: {error}", None


def main(folder: Path, key_path: Path, planted: str) -> None:
    key = VerifyingKey.load(key_path)
    if planted:
        for module in (parquet, accepted):
            setattr(module, planted, lambda *_: None)
    names = sorted(path.name for path in folder.iterdir())
    honest = _read(folder / names[0], key)[1]
    start, resident = _memory("VmPeak"), _memory("VmHWM")
    resource.setrlimit(resource.RLIMIT_AS, (start * MIB + MOST_MORE, resource.RLIM_INFINITY))
    for name in names:
        before, began = _memory("VmPeak"), time.monotonic()
        outcome, rows = _read(folder / name, key)
        took = time.monotonic() - began
        if outcome == "taken" and rows == honest:
            outcome = "as the honest one"
        told = Told(name, outcome, _memory("VmPeak") - before, _memory("VmHWM") - resident, round(took, 3))
        print(json.dumps(told.__dict__), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
