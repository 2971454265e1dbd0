"""Messages that a malicious labels party signs: correct but for one file, or for the manifest itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from label_dp.documents.bundle import FOLDER_ENVELOPE
from label_dp.documents.canonical import digest
from label_dp.documents.signing import MANIFEST_TYPE, SigningKey
from tests.support import hostile_parquet as h
from tests.support.messages import Sender, one_bit
from tests.support.tampering import payload_of, sealed

IDS = [f"click-{i:04d}" for i in range(60)]


def honest(sender: Sender, folder: Path) -> Path:
    sender.write(folder / "message.parquet", IDS, np.arange(60.0) % 11, one_bit(), prior=np.full(11, 1 / 11))
    (folder / "message.parquet.dsse.json").rename(folder / FOLDER_ENVELOPE)
    (folder / "message.prior.parquet").rename(folder / "prior.parquet")
    return folder


def hostile_messages(good: Path) -> Iterator[tuple[str, bytes]]:
    """Files to stand for the message's."""
    data, rows = (good / "message.parquet").read_bytes(), pq.read_table(good / "message.parquet")
    bins, outputs = rows["bin"].to_numpy(), np.asarray(one_bit().outputs)
    yield from h.lying_pages(data, 3)
    yield from h.lying_footers(data)
    yield from h.wrong_rows(IDS, bins, outputs)
    yield from h.expanding(IDS, bins, outputs)
    for name, junk in {
        "nothing but magic": b"PAR1PAR1",
        "magic once": b"PAR1",
        "text": b"example_id,bin,label\n",
    }.items():
        yield f"junk: {name}", junk
    arrow = pa.BufferOutputStream()
    with pa.ipc.new_file(arrow, rows.schema) as writer:
        writer.write_table(rows)
    yield "junk: an Arrow file", arrow.getvalue().to_pybytes()


def hostile_priors(good: Path) -> Iterator[tuple[str, bytes]]:
    data = (good / "prior.parquet").read_bytes()
    yield from h.lying_pages(data, 2)
    yield from h.lying_footers(data)


def sign_all(
    good: Path, files: Iterable[tuple[str, bytes]], role: str, key: SigningKey, folder: Path
) -> dict[str, str]:
    """A folder per hostile file, as releases of their own, under names that sort; {name of the folder: what it is}."""
    names = {}
    parts = {path.name: path.read_bytes() for path in good.iterdir()}
    place = "message.parquet" if role == "message" else "prior.parquet"
    for number, (what, data) in enumerate(files):
        name = f"{role}-{number:03d}"
        document = json.loads(payload_of(good)) | {"id": f"rel_{role}_{number}"}
        for entry in document["files"]:
            if entry["role"] == role:
                entry |= {"bytes": len(data), "sha256": digest(data)}
        if "2^31 rows everywhere" in what:
            _claim(document, 1 << 31, role)
        target = folder / name
        target.mkdir(parents=True)
        for part, content in (parts | {place: data}).items():
            (target / part).write_bytes(content)
        (target / FOLDER_ENVELOPE).write_bytes(key.sign(MANIFEST_TYPE, document))
        names[name] = what
    return names


def _claim(document: dict[str, Any], rows: int, role: str) -> None:
    """The manifest agrees with the file's lie."""
    if role == "message":
        document["n"] = rows
    for entry in document["files"]:
        if entry["role"] == role:
            entry["rows"] = rows


def hostile_documents(good: Path) -> dict[str, dict[str, Any]]:
    """Manifests that cost: each member of them is as large, or as wide, as a reader might let it be."""
    document = json.loads(payload_of(good))
    two64, half, most = str(1 << 64), str(1 << 63), (1 << 24) - 1
    one_bit_ = document["channel"]
    rr = {"kind": "rr", "N": two64, "A": str((1 << 64) - 1), "B": "1", "boundaries": ["0", "1", "2"]}
    numbers = [repr(float(i)) for i in range(30_000)]
    return {
        "the widest domain": {"domain": {"range": f"0:{most}:1"}},
        "a domain of tiny steps": {"domain": {"range": f"0:0.0000000000000000000{most}:0.00000000000000000001"}},
        "a domain of huge steps": {"domain": {"range": f"0:{most}{'0' * 50}:1{'0' * 50}"}},
        "a domain of long decimals": {"domain": {"range": f"0.{'3' * 59}:{most}.{'3' * 59}:1"}},
        "a domain of too many values": {"domain": {"range": "0:1000000000:1"}},
        "a domain of a million digits": {"domain": {"range": "0:" + "9" * 600_000 + ":1"}},
        "4,096 values": {"domain": {"values": [str(i) for i in range(4096)]}},
        "100,000 values": {"domain": {"values": [str(i) for i in range(100_000)]}},
        "wide clipping": {"channel": one_bit_ | {"low": "-" + "9" * 40, "high": "9" * 40}},
        "fine clipping": {"channel": one_bit_ | {"low": "0." + "0" * 39 + "1", "high": "0." + "0" * 39 + "2"}},
        "even weights": {"channel": one_bit_ | {"A": half, "B": half}},
        "the largest lattice": {
            "domain": {"range": f"0:{most}:1"},
            "channel": {"kind": "laplace", "N": two64, "epsilon": "0.000000001", "cells": "131000", "reach": "30",
                        "peak": "2"},
        },
        "a lattice beyond it": {
            "channel": {"kind": "laplace", "N": two64, "epsilon": "1", "cells": "9" * 300, "reach": "9" * 300,
                        "peak": "2"}
        },
        "the largest staircase": {
            "channel": {"kind": "staircase", "N": two64, "epsilon": "40", "cells": "65000", "reach": "30000",
                        "peak": str((1 << 64) - 2), "width": "65000"}
        },
        "the largest exponential": {
            "domain": {"range": f"0:{most}:1"},
            "channel": {"kind": "exponential", "N": two64, "decay": "24", "cells": "2048"},
        },
        "30,000 knots": {
            "domain": {"range": f"0:{most}:1"},
            "channel": {"kind": "knots", "N": two64, "knots": [str(i) for i in range(30_000)],
                        "outputs": ["0.0", "1.0"], "weights": [[half, half]] * 10_000, "residual_bias": "0.0"},
        },
        "30,000 kept": {
            "domain": {"range": f"0:{most}:1"},
            "channel": {"kind": "rr-with-prior", "N": two64, "A": str((1 << 64) - 29_999), "B": "1",
                        "kept": [str(i) for i in range(30_000)]},
        },
        "30,000 subsets": {
            "domain": {"range": f"0:{most}:1"},
            "channel": {"kind": "subset-selection", "N": two64, "A": "2", "B": "1", "blocks": [["0"]] * 30_000},
        },
        "30,000 bins": {
            "domain": {"range": f"0:{most}:1"},
            "channel": rr | {"outputs": numbers, "bin_means": numbers, "boundaries": [str(i) for i in range(30_001)]},
        },
        "dense": {"channel": {"kind": "dense", "N": two64, "outputs": numbers, "weights": [["1"] * 30_000]}},
        "4,096 files": {"files": [document["files"][0] | {"name": f"p{i}", "rows": 0} for i in range(4096)]},
        "10,000 files": {"files": [document["files"][0] | {"name": f"p{i}"} for i in range(8000)]},
        "1,000 audiences": {"audiences": ["features-party", *[f"a{i}" for i in range(999)]]},
        "50,000 audiences": {"audiences": ["features-party", *[f"a{i}" for i in range(50_000)]]},
        "2^40 rows": {"n": 1 << 40, "files": [f | {"rows": 1 << 40} for f in document["files"]]},
        "2^50 bytes": {"files": [f | {"bytes": 1 << 50} for f in document["files"]]},
        "more examples than integers": {"unit": {"kind": "unit", "column": "u", "max_examples": (1 << 53) - 1,
                                                 "epsilon_per_unit": "9" * 30}},
        "a million ε": {"epsilon_lifetime": "1000000"},
        "an exponent of ε": {"epsilon_lifetime": "1e1000000000"},
        "a long text": {"mechanism": {"name": "x" * 400, "why": "y" * 700_000}},
        "another member": {"more": [[]] * 200_000},
        "nested": {"domain": _nested(14)},
        "nested deeply": {"domain": _nested(900)},
    }  # fmt: skip


def _nested(depth: int) -> Any:
    found: Any = {}
    for _ in range(depth):
        found = {"values": [found]} if depth < 100 else [found]
    return found


def sign_documents(good: Path, key: SigningKey, folder: Path, without: tuple[str, ...] = ()) -> dict[str, str]:
    """As `sign_all`, the files unchanged."""
    names = {}
    for number, (what, members) in enumerate(hostile_documents(good).items()):
        if what in without:
            continue
        target = folder / f"document-{number:03d}"
        target.mkdir(parents=True)
        for path in good.iterdir():
            (target / path.name).write_bytes(path.read_bytes())
        payload = json.dumps(
            json.loads(payload_of(good)) | members, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        (target / FOLDER_ENVELOPE).write_bytes(sealed(payload.encode(), key))
        names[target.name] = what
    return names
