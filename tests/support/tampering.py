"""What a forger on the way may do to a message without the signing key; every attack yields (name, damage) pairs.

A damage changes the files of a copy. `taken` is what a receiver does with what then lies there.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from label_dp.documents import bundle
from label_dp.documents.bundle import FOLDER_ENVELOPE
from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.rows import read_message
from label_dp.documents.signing import EXPORT_TYPE, MANIFEST_TYPE, SigningKey, VerifyingKey, key_id, pae
from label_dp.errors import LabelDPError
from tests.support.messages import Sender, one_bit
from tests.support.thrift_forge import Reading

ME = "features-party"
PARTS = ("part-0.parquet", "part-1.parquet", "prior.parquet")
SLOTS = (*PARTS, FOLDER_ENVELOPE)
IDS = [f"click-{i:04d}" for i in range(60)]
GROUP_ORDER = (1 << 252) + 27742317777372353535851937790883648493  # of the curve: a signature plus it is malleated
Damage = Callable[[Path], object]
Attack = Iterator[tuple[str, Damage]]


def send(sender: Sender, folder: Path, seed: int = 0, **how: Any) -> Path:
    """A valid message in two parts with a prior; another seed changes every file."""
    labels, prior = np.arange(len(IDS), dtype=np.float64) % 11, np.arange(1.0, 12.0) + seed
    ids = how.pop("ids", IDS)
    sender.write(folder, ids, labels, one_bit(), prior=prior / prior.sum(), parts=2, seed=seed, **how)
    return folder


def taken(path: Path, key: VerifyingKey, me: str = ME) -> bool:
    """Whether a receiver verifies the message and reads its rows. Whatever is no typed refusal is raised."""
    try:
        found = bundle.verify(path, key, me)
        read_message(list(found.paths), found.manifest)
    except LabelDPError as error:
        refusal = error
    else:
        return True
    assert refusal.exit_code in (1, 2)
    assert refusal.detail.endswith((".", ")"))
    return False


def survivors(attack: Attack, whole: Path, work: Path, key: VerifyingKey) -> tuple[int, list[str]]:
    """(tried, names of those that a receiver took) when each damage is done to a copy of `whole`."""
    tried, passed = 0, []
    shutil.copytree(whole, work)
    clean = {path.name: path.read_bytes() for path in work.iterdir()}
    for name, damage in attack:
        damage(work)
        if all((work / part).is_file() and (work / part).read_bytes() == data for part, data in clean.items()):
            continue  # some splices give what was there
        tried += 1
        if taken(work, key):
            passed.append(name)
        found = {entry.name: entry for entry in os.scandir(work)}
        if found.keys() != clean.keys() or not all(e.is_file(follow_symlinks=False) for e in found.values()):
            shutil.rmtree(work)
            work.mkdir()
        for part, data in clean.items():
            if not (work / part).exists() or (work / part).read_bytes() != data:
                overwrite(work / part, data)
    return tried, passed


def put(name: str, data: bytes) -> Damage:
    return lambda folder: overwrite(folder / name, data)


def overwrite(path: Path, data: bytes) -> None:
    """In place: making a file anew takes some file systems milliseconds."""
    with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
        file.write(data)
        if file.seek(0, 2) != len(data):
            file.truncate(len(data))


# --- bytes ---------------------------------------------------------------------------------------------------


def envelope_bits(whole: Path, rng: random.Random | None = None) -> Attack:
    """Every bit of the envelope file and of the payload inside it, or with `rng` one bit of each byte."""
    data = (whole / FOLDER_ENVELOPE).read_bytes()
    parsed = json.loads(data)
    payload = base64.b64decode(parsed["payload"])

    def bits(of: bytes) -> list[int]:
        return list(range(len(of) * 8)) if rng is None else [8 * i + rng.randrange(8) for i in range(len(of))]

    for at in bits(data):
        yield f"envelope bit {at}", put(FOLDER_ENVELOPE, flipped(data, at))
    for at in bits(payload):
        changed = base64.b64encode(flipped(payload, at)).decode()
        yield f"payload bit {at}", put(FOLDER_ENVELOPE, canonical_bytes(parsed | {"payload": changed}))


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def file_flips(whole: Path, count: int, rng: random.Random) -> Attack:
    files = {name: (whole / name).read_bytes() for name in PARTS}
    for _ in range(count):
        name = rng.choice(PARTS)
        bit = rng.randrange(8 * len(files[name]))
        yield f"{name} bit {bit}", put(name, flipped(files[name], bit))


def boundaries(path: Path) -> list[int]:
    """Where a Parquet file's magic, page headers, pages, footer and its length begin and end."""
    data, meta = path.read_bytes(), pq.read_metadata(path)
    found = {0, 4, len(data) - 4, len(data) - 8, len(data) - 8 - meta.serialized_size}
    for group, column in itertools.product(range(meta.num_row_groups), range(meta.num_columns)):
        chunk = meta.row_group(group).column(column)
        at = chunk.dictionary_page_offset or chunk.data_page_offset
        stop = at + chunk.total_compressed_size
        while at < stop:
            reading = Reading(data, at)
            header = reading.struct()
            found |= {at, reading.at}
            at = reading.at + header[3][1]
        found.add(stop)
    return sorted(found)


def truncations(whole: Path) -> Attack:
    for name in PARTS:
        data = (whole / name).read_bytes()
        for at in boundaries(whole / name):
            yield f"{name} cut at {at}", put(name, data[:at])
            yield f"{name} without its first {at}", put(name, data[at:] if at else b"")
            yield f"{name} twice up to {at}", put(name, data[:at] + data)
            yield f"{name} with a hole at {at}", put(name, data[:at] + b"\0" + data[at:])
        yield f"{name} missing or empty", put(name, b"")
    envelope = (whole / FOLDER_ENVELOPE).read_bytes()
    for at in [i for i, byte in enumerate(envelope) if byte in b'{}[]:,"']:
        yield f"envelope cut at {at}", put(FOLDER_ENVELOPE, envelope[:at])
        yield f"envelope from {at}", put(FOLDER_ENVELOPE, envelope[at + 1 :])
    for more in (b"\n", b" ", b"\0", envelope, b"\xef\xbb\xbf"):
        yield f"envelope and {more[:3]!r}", put(FOLDER_ENVELOPE, envelope + more)
        yield f"{more[:3]!r} and envelope", put(FOLDER_ENVELOPE, more + envelope)


def splices(messages: dict[str, Path]) -> Attack:
    """Each slot from any of the messages (not all from one), and the parts of one message in another order."""
    data = {name: {slot: (path / slot).read_bytes() for slot in SLOTS} for name, path in messages.items()}

    def lay(chosen: dict[str, bytes]) -> Damage:
        def damage(folder: Path) -> None:
            for slot, content in chosen.items():
                overwrite(folder / slot, content)

        return damage

    for names in itertools.product(data, repeat=len(SLOTS)):
        if len(set(names)) > 1:
            yield "-".join(names), lay({slot: data[name][slot] for slot, name in zip(SLOTS, names, strict=True)})
    for name, order in itertools.product(data, list(itertools.permutations(PARTS))[1:]):
        moved = {slot: data[name][other] for slot, other in zip(PARTS, order, strict=True)}
        yield f"{name} as {order}", lay(moved | {FOLDER_ENVELOPE: data[name][FOLDER_ENVELOPE]})
    for a, b in itertools.permutations(data, 2):
        first, second = data[a][PARTS[0]], data[b][PARTS[0]]
        for cut in (4, len(first) // 2, len(first) - 8):
            yield f"{a} up to {cut}, then {b}", put(PARTS[0], first[:cut] + second[cut:])


# --- the envelope as a structure -------------------------------------------------------------------------------


def sealed(payload: bytes, key: SigningKey, kind: str = MANIFEST_TYPE, **members: Any) -> bytes:
    """An envelope around any bytes at all, correctly signed."""
    signature = base64.b64encode(key.key.sign(pae(kind, payload))).decode()
    body = {"payload": base64.b64encode(payload).decode(), "payloadType": kind}
    return canonical_bytes(body | {"signatures": [{"keyid": key.public.id, "sig": signature}]} | members)


def payload_of(whole: Path) -> bytes:
    return base64.b64decode(json.loads((whole / FOLDER_ENVELOPE).read_bytes())["payload"])


def wrong_signatures(whole: Path, other: Path, key: SigningKey) -> Attack:
    """Other keys, types, algorithms and spellings; nothing here is signed by `key` as a manifest."""
    envelope = json.loads((whole / FOLDER_ENVELOPE).read_bytes())
    payload, stranger = payload_of(whole), SigningKey.generate()
    (entry,) = envelope["signatures"]
    raw = base64.b64decode(entry["sig"])
    elsewhere = json.loads((other / FOLDER_ENVELOPE).read_bytes())["signatures"]

    def signed(*signatures: Any, **members: Any) -> bytes:
        return canonical_bytes(envelope | {"signatures": list(signatures)} | members)

    def with_sig(data: bytes) -> bytes:
        return signed(entry | {"sig": base64.b64encode(data).decode()})

    s = int.from_bytes(raw[32:], "little")
    texts = {
        "another key": sealed(payload, stranger),
        "another key under our name": sealed(payload, stranger).replace(
            stranger.public.id.encode(), key.public.id.encode()
        ),
        "an export's type": sealed(payload, key, EXPORT_TYPE),
        "an export's type, renamed": sealed(payload, key, EXPORT_TYPE, payloadType=MANIFEST_TYPE),
        "signed without the type": signed(entry | {"sig": base64.b64encode(stranger.key.sign(payload)).decode()}),
        "the payload itself signed": with_sig(key.key.sign(payload)),
        "the signature of another message": signed(*elsewhere),
        "malleated": with_sig(raw[:32] + (s + GROUP_ORDER).to_bytes(32, "little")),
        "zeros": with_sig(bytes(64)),
        "the neutral point": with_sig(bytes([1]) + bytes(63)),
        "too short": with_sig(raw[:-1]),
        "too long": with_sig(raw + b"\0"),
        "none": signed(),
        "two": signed(entry, entry),
        "two, one of them ours": signed(entry, sealed_entry(payload, stranger)),
        "alg none": signed(entry | {"alg": "none", "sig": ""}),
        "alg none in the envelope": signed(entry, alg="none"),
        "an RSA key id": signed(entry | {"keyid": "rsa:" + entry["keyid"].split(":")[1]}),
        "an upper case key id": signed(entry | {"keyid": entry["keyid"].upper()}),
        "no key id": signed({"sig": entry["sig"]}),
        "an empty key id": signed(entry | {"keyid": ""}),
        "a null key id": signed(entry | {"keyid": None}),
        "urlsafe base64": signed(entry | {"sig": base64.urlsafe_b64encode(raw).decode() + "="}),
        "unpadded": signed(entry | {"sig": entry["sig"].rstrip("=")}),
        "a payload type with a charset": signed(entry, payloadType=MANIFEST_TYPE + "; charset=utf-8"),
        "a payload type of another case": signed(entry, payloadType=MANIFEST_TYPE.upper()),
        "spelled with spaces": json.dumps(envelope).encode(),
        "spelled in UTF-16": json.dumps(envelope).encode("utf-16"),
        "a member twice": json.dumps(envelope, separators=(",", ":")).encode().replace(b"{", b'{"payload":"",', 1),
        "escaped": (whole / FOLDER_ENVELOPE).read_bytes().replace(b"payloadType", b"payload\\u0054ype"),
    }
    for name, text in texts.items():
        yield name, put(FOLDER_ENVELOPE, text)


def sealed_entry(payload: bytes, key: SigningKey) -> Any:
    return json.loads(sealed(payload, key))["signatures"][0]


def unsigned_edits(whole: Path) -> Attack:
    """Documents that say something else under the old signature: downgrades, other audiences, less noise."""
    envelope, document = json.loads((whole / FOLDER_ENVELOPE).read_bytes()), json.loads(payload_of(whole))
    edits: dict[str, dict[str, Any]] = {
        "an older version": {"format": "label-dp-message/0"},
        "a newer version": {"format": "label-dp-message/2"},
        "another audience": {"audiences": [ME, "mallory"]},
        "another release": {"id": "rel_2"},
        "another batch": {"batch": "bat_2"},
        "files in another order": {"files": document["files"][::-1]},
        "no prior": {"files": document["files"][:2]},
        "another n": {"n": document["n"] + 1},
        "less ε": {"epsilon_spent": "1"},
        "a larger lifetime": {"epsilon_lifetime": "20"},
        "another key": {"key_id": key_id(bytes(32))},
    }
    for name, edit in edits.items():
        changed = base64.b64encode(canonical_bytes(document | edit)).decode()
        yield name, put(FOLDER_ENVELOPE, canonical_bytes(envelope | {"payload": changed}))


# --- folders -------------------------------------------------------------------------------------------------


def odd_folders(whole: Path, elsewhere: Path) -> Attack:
    """Links, pipes, devices and folders where files should be. `elsewhere` holds another message's files."""

    def instead(name: str, make: Callable[[Path], object]) -> Damage:
        def damage(folder: Path) -> None:
            (folder / name).unlink()
            make(folder / name)

        return damage

    for name in SLOTS:
        yield f"{name} of another message, linked", instead(name, _linked(elsewhere / name))
        yield f"{name} a pipe", instead(name, os.mkfifo)
        yield f"{name} a folder", instead(name, Path.mkdir)
        yield f"{name} endless", instead(name, _linked(Path("/dev/zero")))
        if name != "prior.parquet":  # which may be missing
            yield f"{name} missing", instead(name, lambda path: None)
            yield f"{name} linked to itself", instead(name, lambda path: path.symlink_to(path))
            yield f"{name} of another case", instead(name, lambda path: path.with_name(path.name.upper()).touch())


def _linked(target: Path) -> Damage:
    return lambda path: path.symlink_to(target)


def tar_lies() -> Iterator[tuple[str, dict[str, Any]]]:
    """Members of an upload whose name or kind would lead a careless unpacker out of its folder."""
    import tarfile

    names = ["../escaped", "/escaped", "a/../../escaped", "..\\escaped", "C:\\escaped", "\\\\host\\share\\escaped", "."]
    names += ["..", "nul", "CON", "con.parquet", "part-0.parquet ", "PART-0.PARQUET", "part-0.parquet\u200b", "-rf"]
    names += ["x" * 300, "\u202eteuqrap.0-trap", "part-0.parquet\n", "~/escaped", "$HOME/escaped"]
    for name in names:
        yield name, {"name": name}
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
        yield f"of type {kind!r}", {"name": "escaped", "type": kind, "linkname": "/etc/passwd"}


def footer_of(data: bytes) -> tuple[bytes, bytes]:
    """(everything before the footer, the footer) of a Parquet file."""
    length = struct.unpack("<I", data[-8:-4])[0]
    return data[: -8 - length], data[-8 - length : -8]
