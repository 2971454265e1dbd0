"""A signed answer: one envelope with what was computed, what it cost, and the result: a map, or a median's value."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .canonical import parse
from .clipping import value
from .envelope import open_envelope, read
from .exact import ATTO, units
from .median import check_median
from .message import check_split
from .refusal import refuse

ANSWER_TYPE = "application/vnd.label-dp.answer+json"
MAX_ANSWER = 3 << 19  # bytes of the envelope
MAX_SIZE, MAX_PIECES = 1 << 32, 1 << 16
FLOATS = 2 * 0x7F7FFFFF + 1  # how many numbers scores have as 32-bit floats, −0 being 0
STEPS = re.compile(r"[^:]{1,60}:[^:]{1,60}:([1-9][0-9]{0,9})", re.ASCII)
NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?(e[+-]?[0-9]{1,3})?", re.ASCII)
ONE = {"loss", "shape", "options", "scores"}


def verify_answer(path: Path, key: Ed25519PublicKey, key_id: str, audience: str | None) -> list[str]:
    """What was checked, a line each: the signature, the split of ε and δ, the map of a calibration, the value of a
    median."""
    a = parse(open_envelope(read(path, MAX_ANSWER), key, key_id, ANSWER_TYPE), "the answer")
    if a["format"]["name"] != "label-dp-answer" or type(a["format"]["major"]) is not int or a["format"]["major"] != 1:
        refuse("the document is not an answer of format 1")
    if a["key_id"] != key_id:
        refuse("the answer names another signing key than the one that signed it")
    if audience is not None and audience not in a["audiences"]:
        refuse(f"the answer is not meant for '{audience}'")
    said = [f"signature of {key_id}", f"{a['kind']} {a['answer']} of batch {a['batch']}, {a['n']} examples"]
    said += [check_split(a) + _check_delta(a)]
    if a["kind"] == "median":
        return [*said, check_median(a["parameters"], a["result"], a["domain"])]
    if a["kind"] != "calibration":
        return [*said, f"not checked: the result, since this verifier does not know that of a {a['kind']}"]
    return [*said, _check_calibration(a["parameters"], a["result"], _ends(a["domain"]))]


def _check_delta(a: Any) -> str:
    own, spent, most = (
        units(text, ATTO, "δ") for text in (a["epsilon"]["delta"], a["delta_spent"], a["delta_lifetime"])
    )
    if not 0 <= own <= spent <= most:
        refuse("δ of this answer ≤ δ spent ≤ lifetime δ does not hold")
    return f"; δ {a['epsilon']['delta']}" if own else ""


def _ends(domain: Any) -> tuple[float, float]:
    texts = domain["values"] if "values" in domain else domain["range"].split(":")[:2]
    return float(value(texts[0])), float(value(texts[-1]))


def _check_calibration(parameters: Any, result: Any, ends: tuple[float, float]) -> str:
    """A line for the map of one score, or of two, where `shape` is grid, or bins along both."""
    two = parameters["shape"] == "grid" or (parameters["shape"] == "bins" and "scores_2" in parameters)
    if set(parameters) != (ONE | {"scores_2"} if two else ONE) or set(result) != {"map"}:
        refuse("a calibration has the parameters loss, shape, options and scores, and one map")
    sizes = [_size(parameters[name]) for name in ("scores", "scores_2")[: 1 + two]]
    found = result["map"]
    if two:
        if set(found) != {"kind", "x_sizes", "breakpoints", "values"} or found["kind"] != "grid":
            refuse("a map of two scores is a grid of values")
        edges, rows, listed = found["breakpoints"], found["values"], found["x_sizes"]
    else:
        if set(found) != {"kind", "x_size", "breakpoints", "values"} or found["kind"] != "step":
            refuse("a map of one score is a list of steps")
        edges, rows, listed = [found["breakpoints"]], [[v] for v in found["values"]], [found["x_size"]]
    if listed != sizes or len(edges) != len(sizes):
        refuse("the map is over another domain than that of the scores' numbers")
    for cuts, size in zip(edges, sizes, strict=True):
        if any(type(cut) is not int or not 0 < cut < size for cut in cuts) or any(a >= b for a, b in pairwise(cuts)):
            refuse("the breakpoints of the map do not rise inside its domain")
    wide = len(edges[1]) + 1 if two else 1
    if len(rows) != len(edges[0]) + 1 or any(len(row) != wide for row in rows) or len(rows) * wide > MAX_PIECES:
        refuse("the map has not one value for every piece")
    values = [[_value(text) for text in row] for row in rows]
    falls = any(b < a for row in values for a, b in pairwise(row))
    if falls or any(b < a for one, next_ in pairwise(values) for a, b in zip(one, next_, strict=True)):
        refuse("the map falls somewhere")
    if not ends[0] <= values[0][0] <= values[-1][-1] <= ends[1]:
        refuse("a value of the map lies outside the label domain")
    told = f"{len(rows)} x {wide} cells of two scores" if two else f"{len(rows)} pieces of one score"
    return f"map: {told}, falls nowhere, from {rows[0][0]} to {rows[-1][-1]}"


def _size(numbers: object) -> int:
    """How many numbers scores have."""
    if numbers == "float32":
        return FLOATS
    found = STEPS.fullmatch(numbers) if isinstance(numbers, str) else None
    if found is None or int(found[1]) > MAX_SIZE:
        refuse("how scores are numbered is neither float32 nor LO:HI:STEPS")
    return int(found[1])


def _value(text: object) -> float:
    number = float(text) if isinstance(text, str) and NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(number) or repr(number) != text:
        refuse("a value of the map is not a decimal number in its shortest spelling")
    return number
