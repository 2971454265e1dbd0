#!/usr/bin/env python3
"""Verify a privatized message or an audit export with nothing but Python's standard library and `cryptography`.

    python verify_standalone.py message MESSAGE --key signing.pub [--audience NAME]
    python verify_standalone.py audit EXPORT --key signing.pub

MESSAGE is NAME.parquet with NAME.parquet.dsse.json beside it, or a folder with manifest.dsse.json. Exit code 0: it
verifies; 1: refused, with the reason; 2: wrong usage or an unreadable file. The file is written from the formats'
description, not from the project's code, and shares none with it, so that one can be checked against the other. It
parses no Parquet: which ids and values the rows hold is not checked here, only that not a bit of them was changed.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import hashlib
import itertools
import json
import re
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

MANIFEST_TYPE = "application/vnd.label-dp.manifest+json"
EXPORT_TYPE = "application/vnd.label-dp.audit-export+json"
MAX_MANIFEST, MAX_EXPORT = 3 << 19, 1 << 30
N = 1 << 64
NANO, ATTO = 10**9, 10**18
GENESIS = "0" * 64
HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
INTEGER = re.compile(r"0|[1-9][0-9]{0,399}", re.ASCII)
DECIMAL = re.compile(r"(0|[1-9][0-9]*)(\.[0-9]*[1-9])?", re.ASCII)
SIGNED = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?", re.ASCII)
EVENT_MEMBERS = {
    *("format", "store", "party", "sequence", "previous", "time", "kind", "subject"),
    *("epsilon_nano", "delta", "unit", "audiences", "actor", "details"),
}
SUBJECT_MEMBERS = {"population", "population_name", "label", "batch", "release", "attempt"}


class RefusedError(Exception):
    """What was given does not verify; the text says why."""


class UnusableError(Exception):
    """A file is not there or cannot be read."""


def refuse(why: str) -> NoReturn:
    raise RefusedError(why)


# --- canonical JSON (RFC 8785), without floats ------------------------------------------------------------------


def canonical(value: Any, depth: int = 0) -> str:
    """The one spelling of strings, whole numbers, booleans, null, lists and objects."""
    if depth > 16:
        refuse("a signed document is nested too deeply")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        if abs(value) >= 1 << 53:
            refuse("a whole number is too large for canonical JSON")
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ",".join(canonical(item, depth + 1) for item in value) + "]"
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{canonical(n)}:{canonical(value[n], depth + 1)}" for n in names) + "}"
    refuse("a signed document holds a value that its format does not have")


def canonical_bytes(value: Any) -> bytes:
    try:
        return canonical(value).encode("utf-8")
    except UnicodeEncodeError:
        refuse("a signed document holds half a character")


def _no_float(_: str) -> NoReturn:
    refuse("a signed document holds a floating-point number")


def parse(data: bytes, what: str) -> Any:
    """The value of canonical JSON; every other spelling of it is refused."""
    try:
        value = json.loads(data.decode("utf-8"), parse_float=_no_float, parse_constant=_no_float)
    except (ValueError, RecursionError):
        refuse(f"{what} is not JSON")
    if canonical_bytes(value) != data:
        refuse(f"{what} is not in its canonical spelling")
    return value


# --- signature (DSSE v1.0, Ed25519) -----------------------------------------------------------------------------


def load_key(path: Path) -> tuple[Ed25519PublicKey, str]:
    """(key, its id). The id is the SHA-256 of the raw key."""
    try:
        key = load_pem_public_key(read(path, 1 << 16))
    except (ValueError, UnsupportedAlgorithm):
        raise UnusableError(f"'{path}' is not a PEM public key.") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UnusableError(f"'{path}' is not an Ed25519 key.")
    return key, "ed25519:" + hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()


def strict_base64(text: object) -> bytes:
    if not isinstance(text, str):
        refuse("a part of the envelope is not text")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        refuse("a part of the envelope is not base64")
    if base64.b64encode(data).decode("ascii") != text:
        refuse("a part of the envelope is not in its canonical base64 spelling")
    return data


def open_envelope(envelope: bytes, key: Ed25519PublicKey, key_id: str, kind: str) -> bytes:
    """The signed payload; nothing in it is looked at before its signature was verified."""
    data = parse(envelope, "the envelope")
    if not isinstance(data, dict) or set(data) != {"payload", "payloadType", "signatures"}:
        refuse("the file is not a DSSE envelope")
    signatures = data["signatures"]
    if not isinstance(signatures, list) or len(signatures) != 1 or set(signatures[0]) != {"keyid", "sig"}:
        refuse("the envelope must carry exactly one signature")
    if data["payloadType"] != kind:
        refuse(f"the signed document is not of type {kind}")
    if signatures[0]["keyid"] != key_id:
        refuse("the document names another signing key than the given one")
    payload, signature = strict_base64(data["payload"]), strict_base64(signatures[0]["sig"])
    name = kind.encode("utf-8")
    try:
        key.verify(signature, b"DSSEv1 %d %b %d %b" % (len(name), name, len(payload), payload))
    except InvalidSignature:
        refuse("the signature does not verify: the document was changed or forged")
    return payload


# --- ε, exact ---------------------------------------------------------------------------------------------------


def units(text: object, scale: int, what: str) -> int:
    """A canonical decimal string as a whole number of 1/scale."""
    if not isinstance(text, str) or len(text) > 60 or DECIMAL.fullmatch(text) is None:
        refuse(f"{what} is not a canonical decimal number")
    exact = Fraction(text) * scale
    if exact.denominator != 1:
        refuse(f"{what} has too many decimals")
    return exact.numerator


def exp_lower(nano: int) -> Fraction:
    """A rational that is at most e^ε: partial sums of its series, every term rounded down. From ε = 64 on, e^64."""
    x, one = Fraction(min(nano, 64 * NANO), NANO), 1 << 320
    total = term = one
    n = 0
    while term:
        n += 1
        term = term * x.numerator // (x.denominator * n)
        total += term
    return Fraction(total, one)


def whole(text: object) -> int:
    if not isinstance(text, str) or INTEGER.fullmatch(text) is None:
        refuse("a weight of the channel is not a whole number in canonical form")
    return int(text)


def labels_of(domain: object) -> int:
    """k, the number of labels of a domain `{"range": "LO:HI:STEP"}` or `{"values": [...]}`."""
    if isinstance(domain, dict) and isinstance(domain.get("values"), list) and domain["values"]:
        return len(domain["values"])
    parts = domain.get("range", "").split(":") if isinstance(domain, dict) and isinstance(domain["range"], str) else []
    if len(parts) not in (2, 3) or not all(len(p) <= 400 and SIGNED.fullmatch(p) for p in parts):
        refuse("the label domain cannot be read")
    low, high = Fraction(parts[0]), Fraction(parts[1])
    step = Fraction(parts[2]) if len(parts) == 3 else Fraction(1)
    if step <= 0 or high < low or ((high - low) / step).denominator != 1:
        refuse("the label domain is not a range")
    return int((high - low) / step) + 1


def check_channel(channel: Any, domain: Any, nano: int) -> str:
    """That every output is at most e^ε times likelier under one label than under another, in integers."""
    kind, bound = channel["kind"], exp_lower(nano)
    if kind == "additive":
        scale = Fraction(whole(channel["scale_numerator"]), whole(channel["scale_denominator"]))
        k = labels_of(domain)
        if scale <= 0 or Fraction(k - 1) / scale > Fraction(nano, NANO):
            refuse("the noise is too narrow for the stated ε")
        return f"noise of scale {scale} steps over {k} labels: (k − 1)/scale ≤ ε"
    if whole(channel["N"]) != N:
        refuse("the weights are not out of 2^64")
    if kind in ("laplace", "staircase"):
        return _check_noise(channel, nano)
    if kind == "exponential":
        return _check_exponential(channel, nano)
    if kind == "dense":
        rows = [[whole(w) for w in row] for row in channel["weights"]]
        if len(rows) != labels_of(domain) or any(len(r) != len(channel["outputs"]) or sum(r) != N for r in rows):
            refuse("the rows of the channel do not sum to 2^64, or one is missing")
        if any(min(column) < 1 or max(column) > bound * min(column) for column in zip(*rows, strict=True)):
            refuse("the channel does not keep the stated ε")
        return f"{len(rows)} × {len(rows[0])} weights: every column's largest ≤ e^ε · smallest"
    if kind == "knots":
        return _check_knots(channel, labels_of(domain), bound)
    if kind not in ("rr", "one-bit", "rr-with-prior"):
        refuse("the kind of the channel is unknown")
    a, b = whole(channel["A"]), whole(channel["B"])
    d = {"rr": len(channel.get("outputs", ())), "rr-with-prior": len(channel.get("kept", ()))}.get(kind, 2)
    if not 1 <= b <= a or a + (d - 1) * b != N:
        refuse("the weights A and B of the channel do not sum to 2^64")
    if kind == "rr":
        edges = [whole(e) for e in channel["boundaries"]]
        rising = all(x < y for x, y in itertools.pairwise(edges))
        if len(edges) != d + 1 or edges[0] != 0 or edges[-1] != labels_of(domain) or not rising:
            refuse("the bins of the channel do not cut the label domain into pieces")
    if kind == "rr-with-prior":
        kept = [whole(i) for i in channel["kept"]]
        rising = all(x < y for x, y in itertools.pairwise(kept))
        if d < 2 or kept[-1] >= labels_of(domain) or not rising:
            refuse("the kept labels of the channel are not labels of the domain in rising order")
        # labels that are not kept have N div d and one more, which lie between B and A
    if d > 1 and a > bound * b:
        refuse("the channel does not keep the stated ε: A > e^ε · B")
    return f"A ≤ e^ε · B with A + {d - 1}·B = 2^64"


def _check_knots(channel: Any, labels: int, bound: Fraction) -> str:
    """Rows of integer weights at some labels; labels between two of them have mixtures of their rows."""
    knots = [whole(i) for i in channel["knots"]]
    rising = all(x < y for x, y in itertools.pairwise(knots))
    if len(knots) < 2 or knots[0] != 0 or knots[-1] != labels - 1 or not rising:
        refuse("the knots of the channel do not rise from the first to the last label")
    rows = [[whole(w) for w in row] for row in channel["weights"]]
    if len(rows) != len(knots) or any(len(r) != len(channel["outputs"]) or sum(r) != N for r in rows):
        refuse("the rows of the channel do not sum to 2^64, or one is missing")
    if any(min(column) < 1 or max(column) > bound * min(column) for column in zip(*rows, strict=True)):
        refuse("the channel does not keep the stated ε")
    return (
        f"{len(rows)} × {len(rows[0])} weights at knots: every column's largest ≤ e^ε · smallest; others are mixtures"
    )


# Noise on a lattice is described by a few parameters, from which its whole-number weights follow bit for bit.


def power_of_e(x: Fraction, bits: int, up: bool) -> int:
    """2^bits·e^−x as a whole number, rounded up or down: its alternating series, all terms over 2^400, x ≤ 64."""
    halvings = max(0, (x.numerator // x.denominator).bit_length())
    one, z = 1 << 400, x / (1 << halvings)
    total, term, n = 0, one, 0
    while term:
        total += term if n % 2 == 0 else -term
        n += 1
        term = term * z.numerator // (z.denominator * n)
    for _ in range(halvings):
        total = total * total >> 400
    # the error is below 2^−300, and no power of e is that near to a multiple of 2^−bits
    return (total >> (400 - bits)) + up


def falling(nano: int, cells: int, count: int) -> list[int]:
    """2^144·e^(−ε·t/cells) for t = 0 … count − 1, every step rounded down."""
    rate, x = power_of_e(Fraction(nano, NANO * cells), 80, up=False), [1 << 144]
    while len(x) < count:
        x.append(x[-1] * rate >> 80)
    return x


def noise_weights(channel: Any) -> tuple[list[int], int, int]:
    """(w, cells, reach): w[t] is the weight of noise t and of noise −t, the last one that of everything further out."""
    own = units(channel["epsilon"], NANO, "ε of the noise")
    cells, reach, peak = (whole(channel[name]) for name in ("cells", "reach", "peak"))
    if not 0 < own <= 40 * NANO or cells < 1 or cells + 2 * reach >= 1 << 17 or not 2 <= peak < N or peak % 2:
        refuse("the lattice of the noise is out of bounds")
    b = power_of_e(Fraction(own, NANO), 80, up=True)
    if channel["kind"] == "laplace":
        w = [max(1, peak * x >> 144) for x in falling(own, cells, cells)]
    else:
        width = whole(channel["width"])
        if not 1 <= width <= cells:
            refuse("the step of the staircase is out of bounds")
        w = [peak] * width + [-(-peak * b >> 80)] * (cells - width)
    while len(w) < cells + reach:
        w.append(-(-w[len(w) - cells] * b >> 80))
    tail = -(-sum(w[reach:]) * b // ((1 << 80) - b))
    left = N - w[0] - 2 * (sum(w) - w[0] + tail)
    if left < 0 or any(x < y for x, y in itertools.pairwise(w)):
        refuse("the weights of the noise rise with distance, or sum to more than 2^64")
    return [*w, tail + left // 2], cells, reach


def _check_noise(channel: Any, nano: int) -> str:
    w, cells, reach = noise_weights(channel)
    bound, tails = exp_lower(nano), list(itertools.accumulate(reversed(w)))[::-1]
    pairs = [(w[t], w[t + cells]) for t in range(reach)] + [(tails[reach], tails[reach + cells])]
    pairs += [(w[0], w[cells - 1])] if reach == 0 else []
    if any(x * bound.denominator > bound.numerator * y for x, y in pairs):
        refuse("the channel does not keep the stated ε: its noise is too narrow")
    return f"{channel['kind']} noise on {cells} + 2·{reach} lattice steps: weights {cells} apart differ by at most e^ε"


def exponential_rows(channel: Any) -> Iterator[list[int]]:
    """Row a has weight ∝ e^(−decay·|j − a|/cells) for output j, and sums to 2^64."""
    decay, cells = units(channel["decay"], NANO, "the decay of the channel"), whole(channel["cells"])
    if not 0 < decay <= 24 * NANO or not 1 <= cells <= 1 << 11:
        refuse("the lattice of the exponential mechanism is out of bounds")
    m = cells + 1
    x = [min(v >> 80, N - 1) for v in falling(decay, cells, m)]
    sums = list(itertools.accumulate(x))
    for a in range(m):
        quota = N * (N - m) // (sums[a] + sums[cells - a] - x[0])
        row = [(x[abs(j - a)] * quota >> 64) + 1 for j in range(m)]
        row[a] += N - sum(row)
        yield row


def _check_exponential(channel: Any, nano: int) -> str:
    rows, bound = exponential_rows(channel), exp_lower(nano)
    largest = smallest = next(rows)
    for row in rows:
        largest, smallest = list(map(max, largest, row)), list(map(min, smallest, row))
    if any(x * bound.denominator > bound.numerator * y for x, y in zip(largest, smallest, strict=True)):
        refuse("the channel does not keep the stated ε")
    return f"exponential mechanism, {len(largest)} outputs: every column's largest weight ≤ e^ε · smallest"


# --- a message --------------------------------------------------------------------------------------------------


def verify_message(path: Path, key: Ed25519PublicKey, key_id: str, audience: str | None) -> list[str]:
    folder = path.is_dir()
    envelope_path = path / "manifest.dsse.json" if folder else path.with_name(path.name + ".dsse.json")
    payload = open_envelope(read(envelope_path, MAX_MANIFEST), key, key_id, MANIFEST_TYPE)
    m = parse(payload, "the manifest")
    if m["format"]["name"] != "label-dp-message" or type(m["format"]["major"]) is not int or m["format"]["major"] != 1:
        refuse("the document is not the manifest of a message of format 1")
    if m["key_id"] != key_id:
        refuse("the manifest names another signing key than the one that signed it")
    if audience is not None and audience not in m["audiences"]:
        refuse(f"the message is not meant for '{audience}'")
    said = [f"signature of {key_id}", f"release {m['release']} of batch {m['batch']}, {m['n']} examples"]
    said += _check_split(m)
    said.append("channel: " + check_channel(m["channel"], m["domain"], units(m["epsilon"]["randomize"], NANO, "ε")))
    return said + _check_files(m, path, folder)


def _check_split(m: Any) -> list[str]:
    eps = m["epsilon"]
    if set(eps) != {"clip", "prior", "randomize", "total", "delta"}:
        refuse("the ε split has other parts than clip, prior, randomize, total and delta")
    parts = [units(eps[name], NANO, f"ε of part {name}") for name in ("clip", "prior", "randomize")]
    total = units(eps["total"], NANO, "ε")
    spent = units(m["epsilon_spent"], NANO, "ε spent")
    lifetime = units(m["epsilon_lifetime"], NANO, "lifetime ε")
    if sum(parts) != total:
        refuse("the parts of ε do not add up to its total")
    if not total <= spent <= lifetime:
        refuse("ε of this release ≤ ε spent ≤ lifetime ε does not hold")
    if units(eps["delta"], ATTO, "δ") != 0:
        refuse("δ is not zero")
    return [f"ε {eps['total']} = clip {eps['clip']} + prior {eps['prior']} + randomize {eps['randomize']}, "
            f"spent {m['epsilon_spent']} of {m['epsilon_lifetime']}"]  # fmt: skip


def _check_files(m: Any, path: Path, folder: bool) -> list[str]:
    said, rows, names = [], 0, set()
    parts = [f for f in m["files"] if f["role"] == "message"]
    if not parts or (not folder and len(parts) != 1):
        refuse("this message has several files; name the folder that holds them")
    for entry in m["files"]:
        name, role = entry["name"], entry["role"]
        if NAME.fullmatch(name) is None or name in names or name == "manifest.dsse.json":
            refuse("a file of the message has no plain name of its own")
        names.add(name)
        if role not in ("message", "prior") or not isinstance(entry["rows"], int):
            refuse("a file of the message has an unknown role")
        rows += entry["rows"] if role == "message" else 0
        place = path / name if folder else path if role == "message" else path.with_name(path.stem + ".prior.parquet")
        if role == "prior" and not place.exists():
            said.append("not checked: the prior's file, which is not here and not needed")
            continue
        size, digest = _hash(place, entry["bytes"])
        if size != entry["bytes"] or digest != entry["sha256"]:
            refuse(f"'{place.name}' does not match the manifest: it was changed or cut short")
        said.append(f"{place.name}: {size} bytes, SHA-256 {digest}")
    if rows != m["n"]:
        refuse("the rows of the message's files do not add up to n")
    return said


def _hash(path: Path, most: int) -> tuple[int, str]:
    hasher, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while (chunk := file.read(1 << 20)) and size <= most:
                size += len(chunk)
                hasher.update(chunk)
    except OSError as error:
        raise UnusableError(f"'{path}' cannot be read ({error.strerror}).") from None
    return size, hasher.hexdigest()


# --- an audit export --------------------------------------------------------------------------------------------


class Ledger:
    """Adds up charges: per batch never below zero, never beyond the lifetime ε that its population declared."""

    def __init__(self) -> None:
        self.spent: dict[tuple[str, str], int] = {}
        self.lifetime: dict[str, int] = {}
        self.four_eyes: set[str] = set()
        self.asked: dict[str, str] = {}
        self.approved: set[str] = set()

    def add(self, number: int, event: Any) -> None:
        kind, subject, details = event["kind"], event["subject"], event["details"]
        population, release = str(subject["population"]), str(subject["release"])
        if kind == "population-created":
            self.lifetime[population] = units(details["lifetime_epsilon"], NANO, "a lifetime ε")
            if details.get("four_eyes"):
                self.four_eyes.add(population)
        elif kind == "release-requested":
            self.asked[release] = event["actor"]
        elif kind == "release-approved":
            if event["actor"] == self.asked.get(release, event["actor"]):
                refuse(f"event {number}: a release was approved by whoever asked for it, or nobody asked for it")
            self.approved.add(release)
        elif kind in ("release-charged", "charge-returned", "message-accepted"):
            self._charge(number, event, population, release)

    def _charge(self, number: int, event: Any, population: str, release: str) -> None:
        kind = event["kind"]
        if kind == "release-charged" and population in self.four_eyes and release not in self.approved:
            refuse(f"event {number}: a release of a four-eyes population was charged without an approval")
        owner = population if kind != "message-accepted" else f"{population} of {event['details'].get('key_id')}"
        place = owner, str(event["subject"]["batch"])
        total = event["epsilon_nano"]["total"]
        self.spent[place] = self.spent.get(place, 0) + (-total if kind == "charge-returned" else total)
        if self.spent[place] < 0:
            refuse(f"event {number}: more ε is returned than was charged")
        if self.spent[place] > self.lifetime.get(owner, self.spent[place]):
            refuse(f"event {number}: the batch is charged beyond its lifetime ε")


def verify_audit(path: Path, key: Ed25519PublicKey, key_id: str) -> list[str]:
    document = parse(open_envelope(read(path, MAX_EXPORT), key, key_id, EXPORT_TYPE), "the export")
    if document["format"] != "label-dp-audit-export/1" or set(document) != {
        *("format", "party", "count", "head", "events")
    }:
        refuse("the document is not an audit export of format 1")
    previous, ledger = GENESIS, Ledger()
    for number, event in enumerate(document["events"], start=1):
        _check_event(number, event, previous, document["events"][0])
        ledger.add(number, event)
        previous = hashlib.sha256(canonical_bytes(event)).hexdigest()
    if len(document["events"]) != document["count"] or previous != document["head"]:
        refuse("count or head of the export are not those of its events")
    said = [f"signature of {key_id}", f"{document['count']} events of the {document['party']}, head {previous}"]
    for (population, batch), nano in ledger.spent.items():
        of = f" of {decimal(ledger.lifetime[population])}" if population in ledger.lifetime else ""
        said.append(f"population {population}, batch {batch}: ε {decimal(nano)}{of} spent per example")
    said.append("not checked: that no events were cut off at the end (compare the head with one kept elsewhere)")
    return said


def _check_event(number: int, event: Any, previous: str, first: Any) -> None:
    if not isinstance(event, dict) or set(event) != EVENT_MEMBERS or set(event["subject"]) != SUBJECT_MEMBERS:
        refuse(f"event {number} has missing or unknown members")
    if event["format"] != "label-dp-audit/1":
        refuse(f"event {number} has an unknown format")
    if type(event["sequence"]) is not int or event["sequence"] != number:
        refuse(f"event {number} carries number {event['sequence']}: events are missing or reordered")
    if event["previous"] != previous:
        refuse(f"event {number} does not link to the event before it")
    if event["store"] != first["store"]:
        refuse(f"event {number} belongs to another audit store")
    eps = event["epsilon_nano"]
    if set(eps) != {"clip", "prior", "randomize", "total"} or any(type(v) is not int or v < 0 for v in eps.values()):
        refuse(f"event {number} has a charge that is not in whole nano-ε")
    if eps["clip"] + eps["prior"] + eps["randomize"] != eps["total"]:
        refuse(f"event {number}: the parts of ε do not add up to its total")
    units(event["delta"], ATTO, f"δ of event {number}")


def decimal(nano: int) -> str:
    return f"{nano // NANO}.{nano % NANO:09d}".rstrip("0").rstrip(".")


# --- the command ------------------------------------------------------------------------------------------------


def read(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise UnusableError(f"'{path}' cannot be read ({error.strerror}).") from None
    if len(data) > most:
        refuse(f"'{path.name}' is larger than such a document can be")
    return data


def plain(text: str) -> str:
    """Text that the other side wrote, without anything that moves a terminal's cursor."""
    return "".join(c if c.isprintable() else f"[U+{ord(c):04X}]" for c in text)


def main() -> int:
    parser = argparse.ArgumentParser(description="Verify a privatized message or an audit export.")
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind, what in (("message", "NAME.parquet or a message's folder"), ("audit", "a signed audit export")):
        command = kinds.add_parser(kind, help=what)
        command.add_argument("path", type=Path, metavar=kind.upper(), help=what)
        command.add_argument("--key", type=Path, required=True, help="the signer's public key, keys/signing.pub")
        if kind == "message":
            command.add_argument("--audience", help="refuse a message that is not meant for this name")
    arguments = parser.parse_args()
    try:
        key, key_id = load_key(arguments.key)
        if arguments.kind == "message":
            said = verify_message(arguments.path, key, key_id, arguments.audience)
        else:
            said = verify_audit(arguments.path, key, key_id)
    except RefusedError as why:
        sys.stderr.write(f"REFUSED: {plain(str(why))}\n")
        return 1
    except UnusableError as why:
        sys.stderr.write(f"error: {plain(str(why))}\n")
        return 2
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RecursionError):
        # a validly signed document of another shape; which part is of no use to anybody but its signer
        sys.stderr.write("REFUSED: a member of the signed document is missing or of the wrong kind\n")
        return 1
    sys.stdout.write("".join(f"  {plain(line)}\n" for line in said) + "VERIFIED\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
