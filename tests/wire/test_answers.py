"""Signed answers on the wire: nothing that was changed, spliced, misaddressed or newer is accepted."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from label_dp.companions.kinds.calibration import open_calibration
from label_dp.companions.kinds.median import open_median
from label_dp.companions.maps.score_maps import ScoreMap
from label_dp.companions.maps.scores import LARGEST
from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.registry import KINDS, trusted_answer
from label_dp.documents.signing import ANSWER_TYPE, MANIFEST_TYPE, SigningKey
from label_dp.errors import (
    AudienceMismatch,
    MalformedAnswer,
    SignatureInvalid,
    UnsupportedVersion,
    VerificationFailed,
)
from tests.support.calibrations import signed

KEY = SigningKey.generate()
GOOD = signed(KEY, np.array([1.0, 2.5, 7.0]), [30, 60])


def payload(envelope: bytes) -> bytes:
    return base64.b64decode(json.loads(envelope)["payload"])


def changed(**members: Any) -> bytes:
    """GOOD with other members, signed by the right key."""
    return KEY.sign(ANSWER_TYPE, json.loads(payload(GOOD)) | members)


def refused(
    envelope: bytes, kind: type[VerificationFailed] = MalformedAnswer, audience: str = "features-party"
) -> None:
    with pytest.raises(kind) as error:
        open_calibration(envelope, KEY.public, audience)
    assert error.value.detail.endswith(".")


def test_a_calibration_says_what_was_signed_and_maps_scores() -> None:
    found = open_calibration(GOOD, KEY.public, "features-party")
    assert payload(GOOD) == found.answer.payload()
    assert found.map.apply(np.array([-1.0, 2.99, 3.0, 5.9, 6.0, 99.0])).tolist() == [1.0, 1.0, 2.5, 2.5, 7.0, 7.0]
    assert (found.answer.kind, found.loss, found.shape) == ("calibration", "squared", "monotone")


def test_straight_lines_go_through_the_middles_at_the_cuts_and_never_fall() -> None:
    found = open_calibration(GOOD, KEY.public, None)
    lines = found.interpolated(True).map
    # cuts at 3 and 6, middles 1.75 and 4.75; outside halfway to the outer values
    assert lines.apply(np.array([0.0, 3.0, 4.5, 6.0, 9.0])).tolist() == [1.375, 1.75, 3.25, 5.875, 5.875]
    assert np.all(np.diff(lines.apply(np.linspace(-5, 15, 2001))) >= 0)
    assert ScoreMap.from_json(lines.as_json()) == lines
    for grid, cuts in (("float32", [1000, LARGEST, LARGEST + 5]), ("0:1:4294967296", [1, 7, 1 << 31])):
        sent = open_calibration(signed(KEY, np.array([0.0, 2.0, 2.5, 10.0]), cuts, grid), KEY.public, None)
        applied = sent.interpolated(True).map.apply(np.sort(np.random.default_rng(1).normal(0, 1, 1000)))
        assert np.all(np.diff(applied) >= 0)
        assert applied[0] >= 0
        assert applied[-1] <= 10


def test_every_changed_byte_is_refused() -> None:
    rng = np.random.default_rng(7)
    for at in rng.choice(len(GOOD), 400, replace=False):
        data = bytearray(GOOD)
        data[at] ^= 1 << int(rng.integers(8))
        with pytest.raises(VerificationFailed):
            open_calibration(bytes(data), KEY.public, "features-party")
    for cut in (0, 1, len(GOOD) // 2, len(GOOD) - 1):
        with pytest.raises(VerificationFailed):
            open_calibration(GOOD[:cut], KEY.public, "features-party")


def test_another_key_audience_type_or_kind_is_refused() -> None:
    other = SigningKey.generate()
    with pytest.raises(SignatureInvalid):
        open_calibration(GOOD, other.public, "features-party")
    refused(GOOD, AudienceMismatch, "somebody-else")
    refused(KEY.sign(MANIFEST_TYPE, json.loads(payload(GOOD))), SignatureInvalid)
    spliced = json.loads(GOOD) | {"signatures": json.loads(changed(n=101))["signatures"]}
    refused(canonical_bytes(spliced), SignatureInvalid)
    refused(changed(key_id=other.public.id))
    with pytest.raises(MalformedAnswer, match="is needed here"):
        open_median(GOOD, KEY.public, None)


@pytest.mark.parametrize(
    "members",
    [
        {"epsilon": {"clip": "0", "prior": "0", "randomize": "0.4", "total": "0.5", "delta": "0"}},
        {"epsilon_spent": "0.4"},
        {"epsilon_lifetime": "0.4"},
        {"epsilon_spent": "0.50000000000000000000001"},
        {"audiences": ["features-party", "features-party"]},
        {"n": 0},
        {"domain": {"range": "0:10"}},
        {"kind": "Calibration"},
        {"created": "2026-11-20T00:00:00Z"},
        {"unknown": 1},
        {"result": {}},
        {"result": {"map": {}}},
        {"parameters": {"loss": "squared", "shape": "monotone", "options": {}, "scores": "0:10:100"}},
        {"parameters": {"loss": "squared", "shape": "monotone", "options": {}, "scores": "0:10:101", "scores_2": None}},
        {"parameters": {"loss": 1, "shape": "monotone", "options": {}, "scores": "0:10:100", "scores_2": None}},
        {"domain": {"range": "2:10:1"}},
        {"domain": {"range": "0:6:1"}},
    ],
    ids=lambda members: "-".join(members),
)
def test_a_signed_lie_is_refused(members: dict[str, Any]) -> None:
    refused(changed(**members))


@pytest.mark.parametrize(
    "result",
    [
        {"kind": "step", "x_size": 100, "breakpoints": [30, 60], "values": ["2.5", "1.0", "7.0"]},
        {"kind": "step", "x_size": 100, "breakpoints": [60, 30], "values": ["1.0", "2.5", "7.0"]},
        {"kind": "step", "x_size": 100, "breakpoints": [30], "values": ["1.0", "2.5", "7.0"]},
        {"kind": "step", "x_size": 100, "breakpoints": [30, 100], "values": ["1.0", "2.5", "7.0"]},
        {"kind": "step", "x_size": 100, "breakpoints": [30, 60], "values": ["1.0", "nan", "7.0"]},
        {"kind": "step", "x_size": 100, "breakpoints": [30, 60], "values": ["1.0", "2.50", "7.0"]},
    ],
)
def test_a_map_that_falls_or_is_spelt_otherwise_is_refused(result: dict[str, Any]) -> None:
    refused(changed(result={"map": result}))


def test_versions() -> None:
    for newer in ("label-dp-answer/2", "label-dp-answer/10"):
        refused(changed(format=newer), UnsupportedVersion)
    for other in ("label-dp-message/1", "label-dp-answer/0", "label-dp-answer/1.0", "label-dp-answer", 1, None):
        refused(changed(format=other))
    refused(changed(added="by a newer version"))
    with pytest.raises(UnsupportedVersion):
        trusted_answer(changed(kind="novelty"), KEY.public, None)
    refused(changed(kind="novelty"))


@pytest.mark.parametrize("salt", [None, "", "5A" * 16, "5a" * 15, 7])
def test_every_answer_has_a_salt(salt: Any) -> None:
    refused(changed(salt=salt))


def test_what_a_check_stumbles_over_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(*_: Any) -> None:
        raise ValueError("a value that a stranger wrote")

    monkeypatch.setitem(KINDS, "calibration", replace(KINDS["calibration"], rule=stumble))
    with pytest.raises(MalformedAnswer) as error:
        trusted_answer(GOOD, KEY.public, None)
    assert "stranger" not in error.value.detail


def test_a_large_answer_is_refused_before_it_is_signed_or_parsed() -> None:
    answer = open_calibration(GOOD, KEY.public, None).answer
    with pytest.raises(MalformedAnswer, match="larger"):
        answer.model_copy(update={"result": {"map": "x" * (1 << 20)}}).payload()
    refused(b" " * (1 << 21))
