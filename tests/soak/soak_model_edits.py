"""Edited models for long: thousands of edits of every learner's document, each read in a child process whose memory and
processor time are limited; and spellings of numbers at every reader of one."""

from __future__ import annotations

import json
import random
import time
from decimal import Decimal, InvalidOperation
from pathlib import Path

from label_dp.errors import InvalidInput
from label_dp.numbers import BadSpelling, decimal_of, whole_of
from label_dp.privacy import Epsilon, parse_delta
from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support.model_edits import BY_HAND, NAMES, contained, document_of, edited, flipped
from tests.support.number_doors import BAD_TEXTS

CHUNK = 200
LETTERS = "0123456789" * 3 + "+-._eE, \t\n\u0661\uff11\u2212xXnaif\u00a0/%"


def _read(folder: Path, kept: dict[str, bytes]) -> tuple[dict[str, str], list[str]]:
    """What became of each document; a process that ends leaves one to blame, and the rest are read by another."""
    told: dict[str, str] = {}
    ended: list[str] = []
    left = dict(kept)
    while left:
        for path in folder.iterdir():
            path.unlink()
        for name, data in left.items():
            (folder / name).write_bytes(data)
        status, found = contained(folder)
        told |= found
        left = {name: data for name, data in sorted(left.items()) if name not in found}
        if status != 0:
            guilty = min(left)
            ended.append(f"{guilty}: the process ended with {status}")
            told[guilty] = "ended"
            del left[guilty]
    return told, ended


def test_edited_models(scale: Scale, report: Report, tmp_path: Path) -> None:
    rng = random.Random(scale.seed)
    hand: dict[str, bytes] = {}
    for model in ("trees poisson", "ensemble squared"):
        for number, edit in enumerate(BY_HAND.values()):
            document = json.loads(json.dumps(document_of(model)))
            edit(document)
            hand[f"{model} {number:03}"] = json.dumps(document).encode()
    (tmp_path / "read").mkdir()
    told, wrong = _read(tmp_path / "read", hand)
    by_hand = len(told)
    wrong += [f"{name}: {came}" for name, came in told.items() if not came.startswith("invalid-")]
    plain = {f"{name}.json": json.dumps(document_of(name)).encode() for name in NAMES}
    control, more = _read(tmp_path / "read", plain)
    wrong += more + [f"{name} as it was: {came}" for name, came in control.items() if came != "taken"]
    tried, taken, end = 0, 0, time.monotonic() + scale.seconds
    while time.monotonic() < end:
        batch: dict[str, bytes] = {}
        for number in range(CHUNK):
            name = rng.choice(NAMES)
            kept = document_of(name)
            data = flipped(plain[f"{name}.json"], rng) if rng.random() < 0.4 else json.dumps(edited(kept, rng)).encode()
            batch[f"{number:03} {name}"] = data
        found, ended = _read(tmp_path / "read", batch)
        tried, taken = tried + len(found), taken + sum(came == "taken" for came in found.values())
        wrong += ended + [f"{n}: {came}" for n, came in found.items() if came != "taken" and "invalid" not in came]
    report.row(tried, tried - len(wrong), f"typed refusals only; {taken:,} still models; 3 GiB and 10 s for each")
    report.finding(
        "9 an edited model.json",
        tried=f"{by_hand} edits of trees by hand; {tried:,} of every learner by structure and byte, in child processes",
        before="4 of 6 edits ended the interpreter or ran for ever",
        after=f"{len(wrong)} crashes, loops or untyped errors; {taken:,} edits left a model that predicts numbers",
    )
    assert not wrong, wrong[:10]


def test_spellings_of_numbers(scale: Scale, report: Report) -> None:
    """Random texts of digits and what looks like them: ε, δ and whole numbers are what plain ASCII says, or refused."""
    rng, end = random.Random(scale.seed), time.monotonic() + min(scale.seconds, 60)
    wrong: list[str] = []
    tried = taken = 0
    before = sum(1 for text in BAD_TEXTS if _pythons(text))
    for text in BAD_TEXTS:
        for read in (Epsilon.parse, parse_delta, whole_of):
            try:
                read(text)
                wrong.append(f"{read.__qualname__} takes {text[:20]!r}")
            except (InvalidInput, BadSpelling):
                tried += 1
    while time.monotonic() < end:
        for _ in range(1000):
            text = "".join(rng.choices(LETTERS, k=rng.choice((1, 2, 3, 4, 6, 9))))
            tried += 1
            try:
                found = decimal_of(text)
            except BadSpelling:
                continue
            taken += 1
            if not _is_json_number(text) or float(text) != float(found):
                wrong.append(f"decimal_of takes {text!r}")
    report.row(tried, tried - len(wrong), f"ASCII digits alone; {taken:,} were numbers")
    report.finding(
        "11 spellings of ε",
        tried=f"{len(BAD_TEXTS)} spellings at every door that is found (make test); {tried:,} random ones here",
        before=f"1_0 was charged as 10; {before} of the {len(BAD_TEXTS)} were numbers to Python's Decimal",
        after=f"{len(wrong)} taken",
    )
    assert not wrong, wrong[:10]


def _is_json_number(text: str) -> bool:
    """By another reader: the standard library's of JSON, which passes over blanks alone."""
    try:
        found = json.loads(text, parse_int=Decimal, parse_float=Decimal, parse_constant=str)
    except ValueError:
        return False
    return isinstance(found, Decimal) and text == text.strip()


def _pythons(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False
