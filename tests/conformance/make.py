"""Write the conformance kit `kit.tar.xz`: golden documents, changed documents and lying chains, each with its verdict.

    python -m tests.conformance.make

What a lying chain or a golden document must get is stated here; of what chance changed, the product says it, and only
what the standalone verifier refuses for the same reason is in the kit.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import itertools
import json
import random
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from label_dp.documents.bundle import FOLDER_ENVELOPE
from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.signing import ANSWER_TYPE, EXPORT_TYPE, MANIFEST_TYPE, RECEIPT_TYPE, SigningKey
from tests.conformance.verdict import ACCEPTED, product, standalone
from tests.support import honest_chains as chains
from tests.support import lying_chains as lies
from tests.support.golden_documents import Document, documents
from tests.support.messages import Sender
from tests.support.mutated_chains import mutated
from tests.support.mutations import mutants
from tests.support.tampering import envelope_bits, sealed, send, truncations, unsigned_edits, wrong_signatures
from tests.wire.test_signed_lies import VERSIONS, respelled

ARCHIVE = Path(__file__).with_name("kit.tar.xz")
GOLDEN = Path(__file__).parents[1] / "wire" / "v1"
KEY, OTHER = (SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(n, n + 32)))) for n in (0, 1))
ME, SEED = "features-party", 20261128
CHANGED, CHANGED_CHAINS = 400, 120
PARTS = ("part-0.parquet", "part-1.parquet", "prior.parquet")
SIGNING = "keys/signing.pub"
MAIN = {"verify-message": "@", "verify-answer": "@/answer.json", "verify-audit": "@/audit.json"}


@dataclass(frozen=True)
class Case:
    """`command` with its arguments, files by their paths in the kit; `code`: what a client must say."""

    name: str
    command: str
    arguments: tuple[str, ...]
    code: str


class Kit:
    """A folder that grows case by case."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cases = folder, list[Case]()
        (folder / "keys").mkdir(parents=True)
        for name, key in (("signing", KEY), ("features", OTHER)):
            (folder / "keys" / f"{name}.pub").write_bytes(key.public.pem)

    def add(self, name: str, command: str, files: dict[str, bytes], code: str | None = None, *more: str) -> None:
        """Write a case's files. The product says its `code` where none is given."""
        place = f"cases/{len(self.cases) + 1:04d}"
        for file, data in files.items():
            target = self.folder / place / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        words = (MAIN[command] if "message.parquet.dsse.json" not in files else "@/message.parquet", "--key", SIGNING)
        words += more or (() if command == "verify-audit" else ("--audience", ME))
        arguments = tuple(word.replace("@", place) for word in words)
        there = [str(self.folder / word) if "/" in word else word for word in arguments]
        verdict = product(command, there).code if code is None else code
        if code is None and standalone(command, there).code != verdict:
            shutil.rmtree(self.folder / place)
            return
        self.cases.append(Case(name, command, arguments, verdict))

    def index(self) -> bytes:
        """Render `cases.json`, a case a line."""
        lines = [json.dumps(asdict(case), ensure_ascii=False) for case in self.cases]
        return ("[\n" + ",\n".join(lines) + "\n]\n").encode()


def make(folder: Path) -> list[Case]:
    """Write the kit into `folder`, which is new."""
    kit = Kit(folder)
    golden = documents(KEY.public.id)
    stubs = {name: f"not Parquet: stands for {name}\n".encode() for name in PARTS}
    _golden_message(kit)
    for name, document in golden.items():
        if not name.startswith("receipt"):
            _document(kit, name, _with_stubs(document, stubs), stubs, ACCEPTED)
    median = golden["median: ranks"]
    for name, members, code in (
        ("an answer of an unknown kind", {"kind": "novelty"}, "version"),
        ("an answer of a newer format", {"format": "label-dp-answer/2"}, "version"),
        ("an answer for somebody else", {"audiences": ["somebody"]}, "audience"),
        ("an answer of a day that is none", {"created": "2026-02-30"}, "malformed"),
    ):
        _document(kit, name, median | members, stubs, code)
    for name, document, code in _corners(golden):
        _document(kit, name, document, stubs, code)
    _forged_envelopes(kit)
    _other_texts(kit, _with_stubs(golden["message: one bit"], stubs), stubs)
    rng = random.Random(SEED)
    changed = {name: _with_stubs(document, stubs) for name, document in golden.items() if "receipt" not in name}
    for number, (name, document) in enumerate(itertools.islice(mutants(changed, rng), CHANGED)):
        _document(kit, f"changed {number}: {name}", document, stubs)
    _chains(kit)
    (folder / "cases.json").write_bytes(kit.index())
    return kit.cases


# --- messages and answers ------------------------------------------------------------------------------------


def _with_stubs(document: Document, stubs: dict[str, bytes]) -> Document:
    """A message whose files are `stubs`: what a verifier compares is bytes."""
    document = copy.deepcopy(document)
    for entry in document.get("files", ()):
        data = stubs[entry["name"]]
        entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return document


def _document(kit: Kit, name: str, document: Any, stubs: dict[str, bytes], code: str | None = None) -> None:
    if "message" in name:
        kit.add(name, "verify-message", {FOLDER_ENVELOPE: KEY.sign(MANIFEST_TYPE, document), **stubs}, code)
    else:
        kit.add(name, "verify-answer", {"answer.json": KEY.sign(ANSWER_TYPE, document)}, code)


def _corners(golden: dict[str, Document]) -> Iterator[tuple[str, Document, str]]:
    """What readers once told apart."""
    sums, none = golden["sums: of one"], golden["median: none"]
    monotone, grid = golden["calibration: monotone"], golden["calibration: grid of two"]
    zeros = copy.deepcopy(monotone)
    zeros["parameters"]["scores"] = "0.0:10.00:100"
    yield "scores with needless zeros", zeros, ACCEPTED
    unknown = copy.deepcopy(grid)
    unknown["result"]["map"]["kind"] = "novel"
    yield "a map of an unknown kind", unknown, "malformed"
    two, three = {"names": ["no", "yes"]}, {"names": ["no", "perhaps", "yes"]}
    yield "an answer about two classes", sums | {"domain": two}, ACCEPTED
    yield "an answer about three classes", sums | {"domain": three}, "malformed"
    for name, code in (("1__0", ACCEPTED), ("²", ACCEPTED), ("٣", "malformed"), ("1_0.0_1e-1_2", "malformed")):
        yield f"a class named {name}", sums | {"domain": {"names": [name, "yes"]}}, code
    yield "sums of labels that are all the same", sums | {"domain": {"range": "0:0:1"}}, "malformed"
    yield "a median of few labels that costs a δ", none | {"domain": {"range": "0:100:1"}}, "malformed"
    yield "a domain with an exponent", sums | {"domain": {"range": "0:1e1:1"}}, "malformed"


def _golden_message(kit: Kit) -> None:
    files = {path.name: path.read_bytes() for path in GOLDEN.iterdir() if path.name != "signing.pub"}
    kit.add("golden message", "verify-message", files, ACCEPTED)
    without = {name: data for name, data in files.items() if "prior" not in name}
    kit.add("golden message without its prior's file", "verify-message", without, ACCEPTED)
    for name in ("message.parquet", "message.prior.parquet"):
        for what, data in {"cut": files[name][:-1], "of zeros": bytes(len(files[name]))}.items():
            kit.add(f"golden message, {name} {what}", "verify-message", files | {name: data}, "digest")


def _forged_envelopes(kit: Kit) -> None:
    """What somebody without the key does to a message of real files."""
    with tempfile.TemporaryDirectory() as place:
        sender, rng = Sender(), random.Random(SEED)
        sender.key = KEY
        whole = send(sender, Path(place) / "whole")
        release = send(sender, Path(place) / "release", 2, release="rel_2")
        clean = {path.name: path.read_bytes() for path in whole.iterdir()}
        kit.add("message of two parts", "verify-message", clean, ACCEPTED)
        kit.add("message for somebody else", "verify-message", clean, "audience", "--audience", "somebody")
        attacks = itertools.chain(
            wrong_signatures(whole, release, KEY),
            unsigned_edits(whole),
            itertools.islice(envelope_bits(whole, rng), 0, None, 97),
            itertools.islice(truncations(whole), 0, None, 11),
        )
        for name, damage in attacks:
            damage(whole)
            files = {path.name: path.read_bytes() for path in whole.iterdir()}
            if files != clean:
                kit.add(f"forged: {name}", "verify-message", files)
            for file, data in clean.items():
                (whole / file).write_bytes(data)


def _other_texts(kit: Kit, document: Document, stubs: dict[str, bytes]) -> None:
    """Documents in another spelling or of another version, correctly signed."""
    payload = canonical_bytes(document | {"n": 60})
    for name, text in respelled(payload).items():
        kit.add(f"spelled otherwise: {name}", "verify-message", {FOLDER_ENVELOPE: sealed(text, KEY), **stubs})
    for version, _ in VERSIONS:
        text = canonical_bytes(document | {"format": version})
        kit.add(f"format {version!r}", "verify-message", {FOLDER_ENVELOPE: sealed(text, KEY), **stubs})


# --- chains --------------------------------------------------------------------------------------------------


def _chains(kit: Kit) -> None:
    labels, features = chains.chained(chains.labels_chain()), chains.chained(chains.features_chain())
    for name, chain in {"labels party": labels, "features party": features}.items():
        kit.add(f"honest chain of a {name}", "verify-audit", {"audit.json": chains.whole(chain, KEY)}, ACCEPTED)
    for corpus in (
        lies.lying(chains.labels_chain(), lies.LIES),
        lies.lying(chains.features_chain(), lies.RECEIVED_LIES),
    ):
        for name, rule, chain in corpus:
            kit.add(f"lying chain: {name}", "verify-audit", {"audit.json": chains.whole(chain, KEY)}, f"rule-{rule}")
    for members in _other_members():
        envelope = chains.whole(chains.chained(chains.labels_chain()[:1]), KEY, **members)
        kit.add(f"export with {members}", "verify-audit", {"audit.json": envelope}, None)
    for name, chain in _broken_links(labels):
        document = {
            "format": "label-dp-audit-export/1",
            "party": "labels-party",
            "count": len(chain),
            "made": chains.DAY,
        }
        head = hashlib.sha256(canonical_bytes(chain[-1])).hexdigest()
        envelope = KEY.sign(EXPORT_TYPE, document | {"events": chain, "head": head})
        kit.add(f"broken chain: {name}", "verify-audit", {"audit.json": envelope}, "malformed")
    whole = chains.whole(labels, KEY)
    kit.add("an export under another key", "verify-audit", {"audit.json": chains.whole(labels, OTHER)}, "signature")
    kit.add("an export as a message", "verify-audit", {"audit.json": KEY.sign(MANIFEST_TYPE, {})}, "signature")
    kit.add("an export with a space", "verify-audit", {"audit.json": whole + b" "}, "malformed")
    rng = random.Random(SEED)
    for number in range(CHANGED_CHAINS):
        chain = mutated(rng.choice((labels, features)), rng)
        kit.add(f"changed chain {number}", "verify-audit", {"audit.json": chains.whole(chain, KEY)})
    _pairs(kit)
    _receipts(kit)


def _other_members() -> Iterator[dict[str, Any]]:
    yield from (
        {"made": made}
        for made in (5, "", None, "zzz", "2026-11-20T08:30:00", "2026-11-20\n", "2026-02-30", "2026-11-20T24:00:00Z")
    )
    yield from ({"party": party} for party in (7, None))
    yield from ({"count": count} for count in (True, "1", None, 2))
    yield from ({"more": 1}, {"head": None}, {"head": "0" * 64}, {"format": "label-dp-audit-export/2"})


def _broken_links(labels: chains.Chain) -> Iterator[tuple[str, chains.Chain]]:
    def changed(place: int, **members: Any) -> chains.Chain:
        chain = copy.deepcopy(labels)
        chain[place] |= members
        return chain

    yield "an event is left out", labels[:3] + labels[4:]
    yield "two events change places", [*labels[:2], labels[3], labels[2], *labels[4:]]
    yield "the beginning is cut off", labels[1:]
    yield "an actor is changed", changed(4, actor="nobody")
    yield "a charge is lowered", changed(5, epsilon_nano=chains.split(0.5))
    yield "another store's event", chains_of_another_store(labels)
    yield "parts that do not add up", chains.chained(changed(5, epsilon_nano=chains.split(1) | {"prior": 7}))
    yield "a negative part", chains.chained(changed(5, epsilon_nano=chains.split(1) | {"prior": -7, "clip": 7}))
    yield "a member more", chains.chained(changed(5, more=1))
    yield "a δ in another spelling", chains.chained(changed(5, delta="0.0"))
    yield "a day that is none", chains.chained(changed(5, time="2026-02-30"))
    yield "a time that is no day", chains.chained(changed(5, time="2026-11-20T00:00:00Z"))


def chains_of_another_store(labels: chains.Chain) -> chains.Chain:
    """Linked rightly, the last event of another store."""
    chain = copy.deepcopy(labels)
    chain[-1]["store"] = "cd" * 16
    return chain


def _pairs(kit: Kit) -> None:
    """Two exports: of one store at two times, and of both parties."""
    labels = chains.chained(chains.labels_chain()[:7])
    head = {"day": chains.DAY, "digest": hashlib.sha256(canonical_bytes(labels[0])).hexdigest()}
    another, absent = head | {"digest": "0" * 64}, head | {"day": "2026-11-19"}
    fork = chains.chained([*labels[:6], chains.published("rel_1", actor="worker 2")])

    def received(**members: Any) -> chains.Chain:
        more = {
            "chain_head": head,
            "key_id": KEY.public.id,
            "manifest_digest": labels[6]["details"]["manifest_sha256"],
        }
        about = {"key": KEY.public.id, **members}
        first = chains.event("store-created", actor="", party="features-party")
        return chains.chained(
            [
                first,
                chains.accepted(
                    "rel_1", **{"epsilon": 1, "spent": "1"} | about | {"more": more | about.pop("more", {})}
                ),
            ]
        )

    one = chains.whole(labels, KEY)
    pairs = {
        "an older export of the same store": (chains.whole(chains.chained(labels[:4]), KEY), "signing", ACCEPTED),
        "a fork of the same store": (chains.whole(fork, KEY), "signing", "against"),
    }
    for name, (epsilon, spent, more, code) in {
        "what was accepted is charged": (1, "1", {}, ACCEPTED),
        "another ε was accepted than was charged": (0.5, "1", {}, "against"),
        "another document was accepted than was published": (1, "1", {"manifest_digest": "0" * 64}, "against"),
        "less is stated as spent than the chain shows": (0.5, "0.5", {}, "against"),
        "another head than the chain has is stated": (1, "1", {"chain_head": another}, "against"),
        "the head of a day that the chain has not": (1, "1", {"chain_head": absent}, "against"),
        "no head of a chain is stated": (1, "1", {"chain_head": None}, "against"),
    }.items():
        chain = received(epsilon=epsilon, spent=spent, more=more)
        pairs[name] = chains.whole(chain, OTHER, party="features-party"), "features", code
    for name, chain, there, code in _single_lies(head):
        other = chains.whole(there, OTHER, party="features-party")
        files = {"audit.json": chains.whole(chain, KEY), "other.json": other}
        words = ("--against", "@/other.json", "--against-key", "keys/features.pub")
        kit.add(f"two exports: {name}", "verify-audit", files, code, *words)
    for name, (other, key, code) in pairs.items():
        more_words = ("--against", "@/other.json", "--against-key", f"keys/{key}.pub")
        kit.add(f"two exports: {name}", "verify-audit", {"audit.json": one, "other.json": other}, code, *more_words)


def _single_lies(head: dict[str, str]) -> Iterator[tuple[str, chains.Chain, chains.Chain, str]]:
    """Chains of a labels party and of a receiver that differ in one thing."""
    late = {"time": "2026-12-01"}
    begun = chains.labels_chain()[:5]
    honest = [chains.charge("rel_0"), chains.published("rel_0"), chains.charge("rel_1"), chains.published("rel_1")]
    digest = chains.published("rel_1")["details"]["manifest_sha256"]

    def pair(after: chains.Chain, spent: str = "2", **members: Any) -> tuple[chains.Chain, chains.Chain]:
        stated = {"chain_head": head, "key_id": KEY.public.id, "manifest_digest": digest} | members.pop("more", {})
        accepted = chains.accepted("rel_1", 1, spent, key=KEY.public.id, more=stated, **members)
        there = [chains.event("store-created", actor="", party="features-party"), accepted]
        return chains.chained(copy.deepcopy([*begun, *after])), chains.chained(there)

    yield "nothing differs", *pair(honest), ACCEPTED
    yield "less is stated as spent than was charged by then", *pair(honest, "1"), "against"
    yield "another lifetime is stated", *pair(honest, more={"epsilon_lifetime": "300"}), "against"
    yield "another lifetime δ is stated", *pair(honest, more={"delta_lifetime": "0.1"}), "against"
    yield "another batch is stated", *pair(honest, batch="bat_7"), "against"
    yield "another audience is stated", *pair(honest, audiences=["features-party", "somebody"]), "against"
    yield "the charge was returned", *pair([honest[2], chains.cancelled("rel_1"), chains.returned("rel_1")]), "against"
    yield "the release failed", *pair([honest[2], chains.failed("rel_1")]), "against"
    yield "before the labels party's last event", *pair(honest[:2], time="2026-11-19"), "against"
    yield "after the labels party's last event", *pair(honest[:2], **late), ACCEPTED
    drawn = [*honest[:2], *(event | late for event in honest[2:])]
    yield "a head from before the charge", *pair(drawn, **late), "against"
    begins = chains.chained(copy.deepcopy([*begun, *drawn]))[7]
    newest = {"day": late["time"], "digest": hashlib.sha256(canonical_bytes(begins)).hexdigest()}
    yield "the head of the day of the charge", *pair(drawn, more={"chain_head": newest}, **late), ACCEPTED


def pack(folder: Path, archive: Path) -> None:
    """Pack the kit; the same files give the same members, without times and owners."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime, member.uid, member.gid, member.uname, member.gname, member.mode = 0, 0, 0, "", "", 0o644
        if member.isdir():
            member.mode = 0o755
        return member

    with tarfile.open(archive, "w:xz", preset=9) as tar:
        tar.add(folder, "label-dp-conformance", filter=plain)


def _receipts(kit: Kit) -> None:
    """Receipts in the chains of either party: honest ones, and ones that say something else or do not link."""
    labels, digests = (
        chains.labels_chain()[:5],
        {name: hashlib.sha256(name.encode()).hexdigest() for name in ("rel_1", "rel_2")},
    )
    for name in digests:
        labels += [chains.charge(name), chains.published(name)]
    details = {"key_id": OTHER.public.id, "public_key": base64.b64encode(OTHER.public.raw).decode()}
    labels.append(chains.event("receipt-key-registered", audiences=[ME], details=details))
    features = chains.chained([chains.event("store-created", actor="", party="features-party")])
    head, labels_head = (
        {"day": chains.DAY, "digest": hashlib.sha256(canonical_bytes(chain[0])).hexdigest()}
        for chain in (features, chains.chained(labels))
    )

    def receipts(**changed: Any) -> list[dict[str, Any]]:
        """Two, linked; `changed`: members of the second."""
        about = {"labels_key_id": KEY.public.id, "audience": ME, "accepted": chains.DAY}
        first = about | {
            "document_id": "rel_1",
            "document_digest": digests["rel_1"],
            "position": 1,
            "previous": "0" * 64,
        }
        first |= {"format": "label-dp-receipt/1", "chain_head": head}
        second = first | {"document_id": "rel_2", "document_digest": digests["rel_2"], "position": 2}
        return [first, second | {"previous": hashlib.sha256(canonical_bytes(first)).hexdigest()} | changed]

    def signed(receipt: dict[str, Any], key: SigningKey) -> Any:
        return json.loads(key.sign(RECEIPT_TYPE, receipt))

    for name, changed, key in (
        ("two of them", {}, OTHER),
        ("of another digest", {"document_digest": "0" * 64}, OTHER),
        ("of another audience", {"audience": "somebody"}, OTHER),
        ("of another day", {"accepted": "2026-11-21"}, OTHER),
        ("of another work", {"document_id": "rel_1"}, OTHER),
        ("a position left out", {"position": 3}, OTHER),
        ("a position twice", {"position": 1, "previous": "0" * 64}, OTHER),
        ("linked to another one", {"previous": "1" * 64}, OTHER),
        ("of another head of its chain", {"chain_head": head | {"digest": "0" * 64}}, OTHER),
        ("of no head of its chain", {"chain_head": None}, OTHER),
        ("of a newer format", {"format": "label-dp-receipt/2"}, OTHER),
        ("signed with another key", {}, KEY),
    ):
        first, second = receipts(**changed)
        envelopes = {"rel_1": signed(first, OTHER), "rel_2": signed(second, key)}
        received = [
            chains.event(
                "receipt-received", **chains.ABOUT, **chains.TOLD, batch="bat_1", work=work, details={"receipt": one}
            )
            for work, one in envelopes.items()
        ]
        accepted = [
            chains.accepted(work, 1, str(spent), key=KEY.public.id, more={"receipt": one, "chain_head": labels_head})
            for spent, (work, one) in enumerate(envelopes.items(), start=1)
        ]
        here = chains.whole(chains.chained(copy.deepcopy([*labels, *received])), KEY)
        there = chains.whole(chains.chained(copy.deepcopy([*features, *accepted])), OTHER, party="features-party")
        less = chains.whole(chains.chained(copy.deepcopy([*features, *accepted[:1]])), OTHER, party="features-party")
        kit.add(f"receipts received: {name}", "verify-audit", {"audit.json": here})
        files, words = (
            {"audit.json": here, "other.json": there},
            ("--against", "@/other.json", "--against-key", "keys/features.pub"),
        )
        kit.add(f"receipts of both parties: {name}", "verify-audit", files, None, *words)
        if not changed and key is OTHER:
            kit.add(
                "receipts of both parties: one was rolled back",
                "verify-audit",
                files | {"other.json": less},
                None,
                *words,
            )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        cases = make(Path(place) / "kit")
        pack(Path(place) / "kit", ARCHIVE)
    sys.stdout.write(f"{len(cases)} cases, {ARCHIVE.stat().st_size} bytes in {ARCHIVE}\n")
