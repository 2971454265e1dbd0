"""What the standalone verifier says of a median, beside what a receiver accepts: the same values, the same spelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from label_dp.companions.kinds.median import open_median
from label_dp.documents.signing import SigningKey
from label_dp.domain import Domain
from label_dp.errors import MalformedAnswer
from tests.support.calibrations import signed
from tests.wire.test_two_score_answers import KEY, standalone

HALVES, LISTED, BELOW = (
    Domain.parse("0:60:0.5").as_json(),
    Domain.from_values(["-2.50", "0", "1.5", "10"]).as_json(),
    Domain.parse("-1:1:0.1").as_json(),
)


def median(domain: Any, result: Any, parameters: Any = None) -> bytes:
    given = {"parameters": {"method": "ranks"} if parameters is None else parameters, "result": result}
    return signed(KEY, np.array([1.0]), [], kind="median", domain=domain, **given)


SPLIT = {"clip": "0", "prior": "0", "randomize": "0.5", "total": "0.5", "delta": "0.000001"}


def by_slices(domain: Any, result: Any, key: SigningKey = KEY, **changes: Any) -> bytes:
    given = {"epsilon": SPLIT, "delta_spent": "0.000001", "delta_lifetime": "0.000001"} | changes
    parameters = {"method": "slices"}
    return signed(key, np.array([1.0]), [], kind="median", domain=domain, parameters=parameters, result=result, **given)


def refused(envelope: bytes, folder: Path) -> None:
    """By both verifiers."""
    with pytest.raises(MalformedAnswer):
        open_median(envelope, KEY.public, None)
    done = standalone(folder, envelope)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("REFUSED: ")


GOOD = [
    *((HALVES, text) for text in ("0", "30", "30.5", "60")),
    *((LISTED, text) for text in ("-2.50", "0", "1.5", "10")),
    *((BELOW, text) for text in ("-1", "-0.1", "0", "0.7", "1")),
]
BAD: list[tuple[Any, Any]] = [
    *(
        (HALVES, text)
        for text in ("60.5", "-0.5", "30.25", "30.50", "30.0", "030", "-0", "+1", "3e1", "", "nan", "1/2")
    ),
    *((HALVES, given) for given in (5, True, [], "\u0663", " 1", "1\n", "9" * 401)),
    *((LISTED, text) for text in ("-2.5", "1", "1.50", "11", "10.0")),
    *((BELOW, text) for text in ("-0.10", "-1.1", "-0", "0.05")),
    ({"range": "0:10:3"}, "3"),
    ({"range": "10:0:1"}, "3"),
    ({"range": "0:10:0"}, "3"),
    ({"values": ["3", "1"]}, "3"),
]


@pytest.mark.parametrize(("domain", "text"), GOOD)
def test_a_value_of_the_domain_verifies(domain: Any, text: Any, tmp_path: Path) -> None:
    envelope = median(domain, {"found": True, "median": text})
    open_median(envelope, KEY.public, None)
    done = standalone(tmp_path, envelope)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"median by ranks: {text}" in done.stdout
    assert "not checked" not in done.stdout


def test_none_is_found_only_where_that_costs_a_delta(tmp_path: Path) -> None:
    none, wide = {"found": False, "median": None}, Domain.parse("0:200").as_json()
    envelope = by_slices(wide, none)
    open_median(envelope, KEY.public, None)
    done = standalone(tmp_path, envelope)
    assert (done.returncode, done.stderr) == (0, "")
    assert "median by slices: none found" in done.stdout
    free = {"delta_spent": "0", "epsilon": SPLIT | {"delta": "0"}}
    for number, lie in enumerate((median(wide, none), by_slices(HALVES, none), by_slices(wide, none, **free))):
        (tmp_path / str(number)).mkdir()
        refused(lie, tmp_path / str(number))


@pytest.mark.parametrize(("domain", "text"), BAD)
def test_any_other_value_is_refused(domain: Any, text: Any, tmp_path: Path) -> None:
    envelope = median(domain, {"found": True, "median": text})
    refused(envelope, tmp_path)


@pytest.mark.parametrize(
    "lie",
    [
        {"result": {"found": False, "median": "5"}},
        {"result": {"found": True, "median": None}},
        {"result": {"found": 1, "median": "5"}},
        {"result": {"median": "5"}},
        {"result": {"found": True, "median": "5", "mean": "5"}},
        {"result": "5"},
        {"parameters": {"method": "mean"}},
        {"parameters": {"method": ["ranks"]}},
        {"parameters": {}},
        {"parameters": {"method": "ranks", "n": 1}},
    ],
)
def test_a_median_of_another_form_is_refused(lie: dict[str, Any], tmp_path: Path) -> None:
    envelope = median(HALVES, **({"result": {"found": True, "median": "5"}} | lie))
    refused(envelope, tmp_path)
