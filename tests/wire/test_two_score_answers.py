"""Signed maps of two scores on the wire, at both verifiers: nothing that falls, is spelt otherwise, of another kind or
of another domain is accepted, and a reader of one score refuses it."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.verify_standalone.command import main
from label_dp.companions.kinds.calibration import open_calibration
from label_dp.documents.signing import ANSWER_TYPE, MANIFEST_TYPE, SigningKey
from label_dp.errors import InvalidInput, MalformedAnswer, VerificationFailed
from tests.support.calibrations import TWO_SCORES, grid_map, signed, signed_grid

KEY = SigningKey.generate()
GOOD = signed_grid(KEY)
MAP = grid_map().as_json()


def changed(**members: Any) -> bytes:
    """GOOD with other members, signed by the right key."""
    return KEY.sign(ANSWER_TYPE, json.loads(base64.b64decode(json.loads(GOOD)["payload"])) | members)


def standalone(folder: Path, envelope: bytes, *more: str) -> subprocess.CompletedProcess[str]:
    """Its command in this process; `test_standalone_verifier` runs it as one of its own."""
    (folder / "answer.json").write_bytes(envelope)
    (folder / "signing.pub").write_bytes(KEY.public.pem)
    words = ["answer", str(folder / "answer.json"), "--key", str(folder / "signing.pub"), *more]
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["verify_standalone", *words])
        code = main()
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def test_a_map_of_two_scores_says_what_was_signed() -> None:
    found = open_calibration(GOOD, KEY.public, "features-party")
    assert (found.scores, found.pieces, found.shape) == (2, 6, "grid")
    first, second = np.array([0.0, 4.99, 5.0, 99.0, 5.0]), np.array([0.0, 0.3, 0.29, 2.0, 0.6])
    assert found.apply(first, second).tolist() == [0.0, 1.0, 0.5, 9.0, 9.0]
    with pytest.raises(InvalidInput, match="two scores"):
        _ = found.map
    with pytest.raises(InvalidInput):
        found.apply(first)
    one = open_calibration(signed(KEY, np.array([1.0, 2.0]), [50]), KEY.public, None)
    assert one.scores == 1
    assert np.array_equal(one.apply(first), one.map.apply(first))


def test_bins_have_one_score_or_two(tmp_path: Path) -> None:
    two = changed(**of_parameters(shape="bins"))
    assert open_calibration(two, KEY.public, None).scores == 2
    assert "2 x 3 cells of two scores" in standalone(tmp_path, two).stdout
    (tmp_path / "one").mkdir()
    parameters = {"loss": "squared", "shape": "bins", "options": {}, "scores": "0:10:100", "scores_2": None}
    one = signed(KEY, np.array([1.0, 2.0]), [50], parameters=parameters)
    assert open_calibration(one, KEY.public, None).scores == 1
    assert "2 pieces of one score" in standalone(tmp_path / "one", one).stdout


def test_the_standalone_verifier_reads_maps_of_one_and_two_scores(tmp_path: Path) -> None:
    done = standalone(tmp_path, GOOD, "--audience", "features-party")
    assert done.returncode == 0, done.stderr
    assert "2 x 3 cells of two scores, falls nowhere, from 0.0 to 9.0" in done.stdout
    assert "spent 0.5 of 10" in done.stdout
    one = standalone(tmp_path, signed(KEY, np.array([1.0, 2.5, 7.0]), [30, 60]))
    assert "3 pieces of one score" in one.stdout
    assert one.stdout.endswith("VERIFIED\n")
    assert standalone(tmp_path, GOOD, "--audience", "somebody").returncode == 1
    wide = signed(KEY, np.array([1.0, 2.0]), [(1 << 31) + 5], "float32")
    assert standalone(tmp_path, wide).returncode == 0
    other = standalone(tmp_path, changed(kind="novelty"))
    assert other.stderr.startswith("REFUSED: answers of this kind are unknown")
    (tmp_path / "broken").mkdir()
    flipped = bytearray(GOOD)
    flipped[len(GOOD) // 2] ^= 1
    assert standalone(tmp_path / "broken", bytes(flipped)).stderr.startswith("REFUSED: ")


def of_map(**members: Any) -> dict[str, Any]:
    return {"result": {"map": MAP | members}}


def of_parameters(**members: Any) -> dict[str, Any]:
    return {"parameters": TWO_SCORES | members}


LIES: dict[str, dict[str, Any]] = {
    "falls along the first": of_map(values=[["0.0", "1.0", "2.5"], ["0.5", "0.25", "9.0"]]),
    "falls along the second": of_map(values=[["0.0", "1.0", "0.5"], ["0.5", "4.0", "9.0"]]),
    "outside the domain": of_map(values=[["0.0", "1.0", "2.5"], ["0.5", "4.0", "10.5"]]),
    "below the domain": of_map(values=[["-0.5", "1.0", "2.5"], ["0.5", "4.0", "9.0"]]),
    "another spelling": of_map(values=[["0.0", "1.0", "2.50"], ["0.5", "4.0", "9.0"]]),
    "no number": of_map(values=[["0.0", "1.0", "2.5"], ["0.5", "4.0", "nan"]]),
    "a row too short": of_map(values=[["0.0", "1.0", "2.5"], ["0.5", "4.0"]]),
    "a row too few": of_map(values=[["0.0", "1.0", "2.5"]]),
    "cuts that fall": of_map(breakpoints=[[50], [6, 3]]),
    "a cut outside": of_map(breakpoints=[[50], [3, 10]]),
    "one list of cuts": of_map(breakpoints=[[50]]),
    "another domain": of_map(x_sizes=[101, 10]),
    "a member more": of_map(more=1),
    "no numbering of the second": of_parameters(scores_2=None),
    "another numbering": of_parameters(scores_2="0:1:11"),
    "no numbering": of_parameters(scores_2="0:1"),
    "numbers for a text": of_parameters(scores_2=10),
    "a shape of one score": of_parameters(shape="monotone"),
    "a shape of one score, and one numbering": of_parameters(shape="monotone", scores_2=None),
    "a map of one score": {"result": {"map": {"kind": "step", "x_size": 100, "breakpoints": [], "values": ["1.0"]}}},
    "parts that do not add up": {"epsilon": {"clip": "0", "prior": "0", "randomize": "1", "total": "2", "delta": "0"}},
    "more spent than the lifetime": {"epsilon_spent": "11"},
    "δ beyond what was spent": {
        "epsilon": {"clip": "0", "prior": "0", "randomize": "0.5", "total": "0.5", "delta": "0.1"}
    },
    "a newer format": {"format": "label-dp-answer/2"},
    "another key": {"key_id": "ed25519:" + "0" * 64},
}


@pytest.mark.parametrize("name", LIES)
def test_a_signed_lie_is_refused_by_both_verifiers(name: str, tmp_path: Path) -> None:
    envelope = changed(**LIES[name])
    with pytest.raises(VerificationFailed) as error:
        open_calibration(envelope, KEY.public, "features-party")
    assert error.value.detail.endswith(".")
    done = standalone(tmp_path, envelope)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("REFUSED: ")


def test_a_map_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    envelope = changed(**of_map(kind="forest"))
    with pytest.raises(VerificationFailed):
        open_calibration(envelope, KEY.public, None)
    assert standalone(tmp_path, envelope).returncode == 1


def test_every_changed_byte_is_refused() -> None:
    rng = np.random.default_rng(7)
    for at in rng.choice(len(GOOD), 200, replace=False):
        data = bytearray(GOOD)
        data[at] ^= 1 << int(rng.integers(8))
        with pytest.raises(VerificationFailed):
            open_calibration(bytes(data), KEY.public, "features-party")
    with pytest.raises(VerificationFailed):
        open_calibration(KEY.sign(MANIFEST_TYPE, {"kind": "calibration"}), KEY.public, None)


def test_the_two_shapes_are_never_taken_for_each_other() -> None:
    for envelope in (changed(**LIES["a map of one score"]), changed(**LIES["a shape of one score"])):
        with pytest.raises(MalformedAnswer):
            open_calibration(envelope, KEY.public, None)
