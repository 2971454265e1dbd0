"""A signed answer: one envelope with what was computed, what it cost, and the result, which its kind knows."""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .document import COMMON, MOST_BYTES, check_common, check_format, check_split
from .domains import Domain
from .envelope import open_envelope, parse, read_lines
from .kind import Answer, Kind
from .members import matching, members, text
from .refusal import refuse

ANSWER_TYPE = "application/vnd.label-dp.answer+json"
MAX_ANSWER = 3 << 19  # bytes of the envelope
SALT = re.compile(r"[0-9a-f]{32}", re.ASCII)
NAME = re.compile(r"[a-z][a-z0-9-]{0,39}", re.ASCII)
MEMBERS = {*(*COMMON, "kind", "parameters", "result", "salt")}


@cache
def known() -> dict[str, Kind]:
    """The kinds by name: each file of this folder that has a `KIND`."""
    folder = str(Path(__file__).parent)
    modules = [import_module(f"{__package__}.{found.name}") for found in pkgutil.iter_modules([folder])]
    return {module.KIND.name: module.KIND for module in modules if hasattr(module, "KIND")}


def verify_answer(path: Path, key: Ed25519PublicKey, key_id: str, audience: str | None) -> list[str]:
    """What was checked, a line each: the signature, the split of ε and δ, what the parameters cost, the result.

    A file of predictions has an answer a line."""
    return [said for envelope in read_lines(path, MAX_ANSWER) for said in open_answer(envelope, key, key_id, audience)]


def open_answer(envelope: bytes, key: Ed25519PublicKey, key_id: str, audience: str | None) -> list[str]:
    """As `verify_answer`, of an envelope."""
    payload = open_envelope(envelope, key, key_id, ANSWER_TYPE)
    if len(payload) > MOST_BYTES:
        refuse("the answer is larger than one can be")
    a = parse(payload, "the answer")
    check_format(a, "label-dp-answer")
    members(a, MEMBERS, "the answer")
    matching(a["salt"], SALT, "the salt")
    check_common(a, key_id, audience, "answer")
    text(a["adjacency"], "the word on neighbours")
    split, line = check_split(a)
    said = [f"signature of {key_id}", f"{a['kind']} {a['id']} of batch {a['batch']}, {a['n']} examples"]
    said.append(line)
    kind = known().get(matching(a["kind"], NAME, "the kind of answer"))
    if kind is None:
        refuse("answers of this kind are unknown: a newer verifier may read them", "version")
    given = Answer(a, Domain(a["domain"]), split, _check_mechanism(a["mechanism"]))
    if len(given.domain.names) > 2:
        refuse("more than two classes have no order, and no answers")
    return [*said, kind.check(given)]


def _check_mechanism(mechanism: Any) -> dict[str, Any]:
    """Its facts."""
    members(mechanism, ("name", "source", "facts"), "the mechanism")
    text(mechanism["name"], "the mechanism")
    text(mechanism["source"], "the source of the mechanism", least=0)
    facts = mechanism["facts"]
    if not isinstance(facts, dict) or any(type(v) not in (str, int, bool, type(None)) for v in facts.values()):
        refuse("a fact of the mechanism is no text, number, truth value or null")
    return dict(facts)
