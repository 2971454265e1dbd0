"""What is fuzzed: every reader of bytes that somebody else wrote, as a function of bytes that may only refuse them.

Used by the kept corpus (`tests/wire/corpus`), by seeded mutations of it, and, where it is installed, by atheris.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

from features_party.receive.accepted import read_prior
from label_dp.channels.rr import RRChannel
from label_dp.documents.manifest import Manifest
from label_dp.documents.rows import read_message
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import LabelDPError
from labels_party.labels.formats import FORMATS
from tests.support.hostile_parquet import with_footer
from tests.support.thrift_forge import I32, I64, Reading, Struct, write_struct
from tests.support.upload_formats import ARROW, CSV, JSON, NDJSON, PARQUET, BytesSource

CORPUS = Path(__file__).parents[1] / "wire" / "corpus"
V1 = CORPUS.parent / "v1"
FORMS = {"csv": CSV, "ndjson": NDJSON, "json": JSON, "arrow": ARROW, "parquet": PARQUET}
NUMBERS = [0, 1, -1, 2, 7, 127, 128, 255, 4096, 65535, (1 << 31) - 1, -(1 << 31), 1 << 31, (1 << 63) - 1, 1 << 53]
Target = Callable[[bytes], bool]


class Targets:
    """The functions by name; each says whether its bytes were taken, and raises what is no typed refusal."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.key = folder, VerifyingKey.load(V1 / "signing.pub")
        self.envelope = (V1 / "message.parquet.dsse.json").read_bytes()
        self.manifest = Manifest.trusted(self.envelope, self.key, None)[0]
        self.file = folder / "fuzzed.parquet"
        self.all: dict[str, Target] = {f"labels-{form}": partial(self._labels, form) for form in FORMS}
        self.all |= {"envelope": self._envelope, "manifest": self._manifest}
        self.all |= {"message": self._message, "prior": self._prior}

    def run(self, name: str, data: bytes) -> bool:
        try:
            return self.all[name](data)
        except LabelDPError:
            return False

    def _envelope(self, data: bytes) -> bool:
        Manifest.trusted(data, self.key, None)
        assert data == self.envelope, "a forged envelope was taken"
        return True

    def _manifest(self, data: bytes) -> bool:
        found = Manifest.from_payload(data)
        assert Manifest.from_payload(found.payload()).document() == found.document()
        assert set(json.loads(data)) == set(found.document())
        return True

    def _message(self, data: bytes) -> bool:
        self.file.write_bytes(data)
        rows = read_message([self.file], self.manifest)
        channel = self.manifest.read_channel()
        assert isinstance(channel, RRChannel)
        assert rows.num_rows == self.manifest.n
        ids = [i.encode() for i in rows["example_id"].to_pylist()]
        assert ids == sorted(set(ids))
        assert set(rows["label"].to_pylist()) <= set(channel.outputs.tolist())
        return True

    def _prior(self, data: bytes) -> bool:
        entry = self.manifest.prior_file
        assert entry is not None
        self.file.write_bytes(data)
        prior = read_prior(self.file, self.manifest)
        assert abs(prior.sum() - 1) < 1e-6
        assert (prior >= 0).all()
        return True

    def _labels(self, form: str, data: bytes) -> bool:
        rows = 0
        (reader,) = (f for f in FORMATS if FORMS[form] in f.types)
        for chunk in reader.chunks(BytesSource(data), ("example_id", "label"), self.folder):
            rows += chunk.rows
        return rows > 0


# --- mutations that know the structure -----------------------------------------------------------------------


def mutated(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """A change of one to four steps, of the kind that the content calls for or of plain bytes."""
    for _ in range(rng.randrange(1, 5)):
        try:
            if data[:4] == b"PAR1" and rng.random() < 0.7:
                data = _parquet(data, rng)
            elif data[:1] in (b"{", b"[") and rng.random() < 0.6:
                data = _json(data, rng)
            else:
                data = _bytes(data, rng, others)
        except (ValueError, IndexError, KeyError, TypeError, struct.error, RecursionError, OverflowError):
            data = _bytes(data, rng, others)  # it is damaged already
    return data[: 1 << 20]


def _bytes(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    changed = bytearray(data or b"\0")
    at, length = rng.randrange(len(changed)), rng.choice((1, 2, 4, 8, 64))
    kind = rng.randrange(7)
    if kind == 0:
        changed[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        changed[at : at + length] = rng.randbytes(length)
    elif kind == 2:
        del changed[at : at + length]
    elif kind == 3:
        changed[at:at] = changed[at : at + length] * rng.choice((1, 2, 50))
    elif kind == 4:
        changed[at : at + 4] = struct.pack("<I", rng.choice(NUMBERS) & 0xFFFFFFFF)
    elif kind == 5:
        other = rng.choice(others)
        cut = rng.randrange(len(other) + 1)
        changed[at:] = other[cut:]
    else:
        del changed[at:]
    return bytes(changed)


def _json(data: bytes, rng: random.Random) -> bytes:
    value = json.loads(data)
    places: list[tuple[dict[str, object] | list[object], str | int]] = []
    waiting: list[object] = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            places += [(here, key) for key in here]
            waiting += here.values()
        elif isinstance(here, list):
            places += [(here, i) for i in range(len(here))]
            waiting += here
    holder, place = rng.choice(places)
    some = [None, True, "", "0", "-1", "1e9", "\u0661", "x" * 3000, [], {}, [[[]]], value, *NUMBERS]
    holder[place] = rng.choice(some)  # type: ignore[index]  # the holder's own key
    if isinstance(holder, dict) and rng.random() < 0.2:
        holder.pop(str(place))
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=rng.random() < 0.1).encode()


def _numbers(struct_: Struct) -> list[tuple[Struct, int]]:
    found, waiting = [], [struct_]
    while waiting:
        here = waiting.pop()
        for field, (kind, value) in here.items():
            if kind in (I32, I64):
                found.append((here, field))
            waiting += [v for v in (value[1] if isinstance(value, tuple) else [value]) if isinstance(v, dict)]
    return found


def _parquet(data: bytes, rng: random.Random) -> bytes:
    """A number of the footer, or of the first page's header (of the same length, so that the rest stays in place)."""

    def change(of: Struct) -> None:
        holder, field = rng.choice(_numbers(of))
        kind, old = holder[field]
        holder[field] = (kind, rng.choice([*NUMBERS, old + 1, old - 1, old * 2, old // 2]))

    if rng.random() < 0.6:
        return with_footer(data, change)
    reading = Reading(data, 4)
    header = reading.struct()
    change(header)
    laid = write_struct(header)
    return data[:4] + laid + data[4 + len(laid) :] if rng.random() < 0.5 else data[:4] + laid + data[reading.at :]


def corpus(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
