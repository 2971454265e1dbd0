"""FORMAT.md names every member of every signed document, in the table where it belongs, and no other; its golden bytes,
rules, formats and payload types are those of the code."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from label_dp.audit.events import Event, Subject
from label_dp.audit.rulebook import RULES
from label_dp.channels.base import N
from label_dp.channels.registry import KINDS as CHANNELS
from label_dp.companions.kinds.linear_model import Weight
from label_dp.companions.kinds.own_features import Category, Charging, Number
from label_dp.companions.kinds.prediction_methods import METHODS
from label_dp.companions.kinds.rectangle import Side
from label_dp.companions.kinds.sum import ColumnValues, Grouping
from label_dp.documents.answer import Answer, AnswerMechanism
from label_dp.documents.export import AuditExport
from label_dp.documents.hand_over import HandOver
from label_dp.documents.invitation import Invitation
from label_dp.documents.manifest import Clipping, FileEntry, Manifest, MechanismChoice, PriorRef
from label_dp.documents.members import ChainHead, PopulationRef, Unit
from label_dp.documents.model_statement import ModelEpsilon, ModelSource, ModelStatement
from label_dp.documents.receipt import Receipt
from label_dp.documents.registry import KINDS as ANSWERS
from label_dp.documents.rehearsal import Rehearsal
from label_dp.documents.report import SignedReport
from label_dp.documents.signed import ChargedDocument
from label_dp.documents.signing import SigningKey
from label_dp.domain import Domain
from label_dp.privacy import ZERO, EpsilonSplit
from label_dp.schemas.events import EventRule

PAGE = (Path(__file__).parents[2] / "shared" / "label_dp" / "documents" / "FORMAT.md").read_text("utf-8")
V1 = Path(__file__).parent / "v1"
MEMBER = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


def members(model: type[BaseModel], without: Iterable[str] = ()) -> set[str]:
    """As they are written."""
    return {field.alias or name for name, field in model.model_fields.items()} - set(without)


def sections() -> dict[str, list[set[str]]]:
    """The members of each table whose first column is `member`, by the heading before it."""
    found: dict[str, list[set[str]]] = {}
    for part in re.split(r"^##+ ", PAGE, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        tables = [t for t in re.split(r"\n\n", body.strip()) if t.startswith("| member |")]
        if tables:
            found[heading] = [set(MEMBER.findall(table)) for table in tables]
    return found


COMMON = members(ChargedDocument)
ENVELOPE: dict[str, Any] = json.loads(SigningKey.generate().sign("type", {}))
EXPECTED: dict[str, list[set[str]]] = {
    "Envelope": [{*ENVELOPE, *ENVELOPE["signatures"][0]}],
    "What messages and answers share": [COMMON | {"mechanism"}],
    "Head of a chain": [members(ChainHead)],
    "Population": [members(PopulationRef)],
    "Rule of events": [members(EventRule)],
    "Domain": [{m for d in ("0:1", [0, 1], ["no", "yes"]) for m in Domain.from_json(d).as_json()}],
    "Split of ε": [set(EpsilonSplit(ZERO, ZERO, ZERO).as_json())],
    "Unit": [members(Unit)],
    "Manifest": [members(Manifest, COMMON | {"mechanism"})],
    "Mechanism of a message": [members(MechanismChoice)],
    "Prior": [members(PriorRef)],
    "Clipping": [members(Clipping)],
    "File": [members(FileEntry)],
    "Channels": [{"kind", "N"}],
    "`rr`: randomized response on bins": [set(CHANNELS["rr"].members)],
    "`one-bit`: one bit on a clipped label": [set(CHANNELS["one-bit"].members)],
    "`rr-with-prior`: randomized response on the likeliest labels": [set(CHANNELS["rr-with-prior"].members)],
    "`subset-selection`: a subset that is likelier to hold the label": [set(CHANNELS["subset-selection"].members)],
    "`laplace` and `staircase`: noise on a lattice": [{*CHANNELS["laplace"].members, *CHANNELS["staircase"].members}],
    "`exponential`: the exponential mechanism on a lattice": [set(CHANNELS["exponential"].members)],
    "`knots`: rows of weights at some labels": [set(CHANNELS["knots"].members)],
    "`dense`: a row for every label": [set(CHANNELS["dense"].members)],
    "Answer": [members(Answer, COMMON | {"mechanism"})],
    "Mechanism of an answer": [members(AnswerMechanism)],
    "`rectangle` and `linear-model`: how steps are charged": [members(Charging), members(Number) | members(Category)],
    "Receipt": [members(Receipt)],
    "Hand-over": [members(HandOver)],
    "Invitation": [members(Invitation)],
    "Report": [members(SignedReport)],
    "Statement of a model": [members(ModelStatement), members(ModelSource), members(ModelEpsilon)],
    "Audit export": [members(AuditExport)],
    "Event": [set(Event("").as_json()), set(Subject().as_json())],
}
WITHIN: dict[str, list[set[str]]] = {"rectangle": [members(Side)], "linear-model": [members(Weight)]}
WITHIN["sum"] = [members(ColumnValues), members(Grouping)]
for _name, _kind in ANSWERS.items():
    EXPECTED[f"`{_name}`: parameters"] = [members(_kind.parameters, members(Charging))]
    EXPECTED[f"`{_name}`: facts of its mechanism"] = [{name for form in _kind.facts for name in members(form)}]
    EXPECTED[f"`{_name}`: result"] = [members(_kind.result), *WITHIN.get(_name, [])]


def test_every_table_of_members_is_expected() -> None:
    assert set(sections()) == set(EXPECTED)


@pytest.mark.parametrize("heading", EXPECTED)
def test_a_table_has_the_members_of_its_document(heading: str) -> None:
    assert sections()[heading] == EXPECTED[heading]


def test_every_kind_of_channel_and_of_answer_has_a_section() -> None:
    headings = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
    for kind in CHANNELS:
        assert any(f"`{kind}`" in heading for heading in headings), kind
    for kind in CHANNELS.values():
        assert {"kind", "N", *kind.members} >= {"kind", "N"}
    assert f"`{N}`" in PAGE
    assert f"| `method` | {_listed(METHODS)} |" in PAGE


def _listed(names: Iterable[str]) -> str:
    *most, last = (f"`{name}`" for name in names)
    return f"{', '.join(most)} or {last}"


def test_formats_and_payload_types() -> None:
    for document in (Manifest, Rehearsal, Answer, Receipt, SignedReport, ModelStatement, AuditExport):
        assert f"| `{document.FORMAT}` | `{document.TYPE}` |" in PAGE
        assert document.model_fields["format"].default == document.FORMAT


def test_the_rules_are_those_of_the_rulebook() -> None:
    told = re.search(r"^### Rules of a chain\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    assert told is not None
    assert re.findall(r"^([0-9]+)\. (.*)$", told[1], re.MULTILINE) == [(str(r.number), r.sentence) for r in RULES]


def test_the_golden_bytes_are_those_of_the_stored_message() -> None:
    stored = json.loads((V1 / "message.parquet.dsse.json").read_bytes())
    told = re.search(r"```json\n(.*?)\n```", PAGE, re.DOTALL)
    assert told is not None
    assert told[1].replace("\n", "").encode() == base64.b64decode(stored["payload"])
    assert f"`{stored['signatures'][0]['sig']}`" in PAGE
    assert f"DSSEv1 {len(stored['payloadType'])} {stored['payloadType']}" in PAGE
