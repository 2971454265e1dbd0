"""Bad populations and releases are refused, and cost nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest

from label_dp.documents.bundle import verify
from label_dp.documents.rows import read_message
from tests.support.desk import Desk

POPULATIONS: list[tuple[dict[str, Any], str]] = [
    ({"domain": "10:0"}, "invalid-domain"),
    ({"domain": "0:10:0"}, "invalid-domain"),
    ({"domain": "0:1e15"}, "invalid-domain"),
    ({"domain": []}, "invalid-domain"),
    ({"domain": [1, 1]}, "invalid-domain"),
    ({"domain": ["a"]}, "invalid-domain"),
    ({"domain": [True]}, "invalid-request"),
    ({"domain": None}, "invalid-request"),
    ({"lifetime_epsilon": "0"}, "invalid-epsilon"),
    ({"lifetime_epsilon": "-1"}, "invalid-epsilon"),
    ({"lifetime_epsilon": "nan"}, "invalid-epsilon"),
    ({"lifetime_epsilon": "0.1234567891"}, "invalid-epsilon"),
    ({"lifetime_epsilon": True}, "invalid-request"),
    ({"missing_label": 7.5}, "invalid-input"),
    ({"missing_label": "nan"}, "invalid-input"),
    ({"missing_label": "x"}, "invalid-input"),
    ({"missing_label": "0e-999999999"}, "invalid-input"),
    ({"missing_label": "1e999999999"}, "invalid-input"),
    ({"missing_label": True}, "invalid-request"),
    ({"out_of_domain": "ignore"}, "invalid-request"),
    ({"audiences": []}, None),  # type: ignore[list-item]  # none named: the default
    ({"audiences": ["a", "a"]}, "invalid-input"),
    ({"audiences": [""]}, "invalid-input"),
    ({"audiences": ["a\n"]}, "invalid-input"),
    ({"name": ""}, "invalid-input"),
    ({"name": " x"}, "invalid-input"),
    ({"name": "a\0"}, "invalid-input"),
    ({"name": "x" * 201}, "invalid-request"),
    ({"label": ""}, "invalid-input"),
    ({"name": "shop"}, "conflict"),
]


@pytest.mark.parametrize(("change", "code"), POPULATIONS)
def test_bad_populations_are_refused(change: dict[str, Any], code: str | None, desk: Desk) -> None:
    body = {"name": "new", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "1"} | change
    before = desk.state()
    answer = desk.client.post("/v1/populations", json=body)
    if code is None:
        assert answer.json()["audiences"] == ["features-party"]
        return
    desk.refused(answer, code, status=409 if code == "conflict" else 422)
    assert desk.state() == before


RELEASES: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": "0"}, "invalid-epsilon"),
    ({"epsilon": "-1"}, "invalid-epsilon"),
    ({"epsilon": "nan"}, "invalid-epsilon"),
    ({"epsilon": "inf"}, "invalid-epsilon"),
    ({"epsilon": "0.1234567891"}, "invalid-epsilon"),
    ({"epsilon": 0.1 + 0.2}, "invalid-epsilon"),
    ({"epsilon": "1e-999999999"}, "invalid-epsilon"),
    ({"epsilon": "2.000000001"}, "budget-exceeded"),
    ({"epsilon": "1000000"}, "budget-exceeded"),
    ({"epsilon": "1000001"}, "invalid-epsilon"),
    ({"prior": {"probabilities": [1.0]}}, "invalid-prior"),
    ({"prior": {"probabilities": [0.5] * 101}}, "invalid-prior"),
    ({"prior": {"probabilities": [-0.5, 1.5] + [0.0] * 99}}, "invalid-prior"),
    ({"prior": {"probabilities": ["x"] * 101}}, "invalid-prior"),
    ({"prior": {"probabilities": [[1.0]] * 101}}, "invalid-prior"),
    ({"prior": {"probabilities": []}}, "invalid-prior"),
    ({"prior": {"probabilities": 1}}, "invalid-prior"),
    ({"prior": {"release": "rel_0"}}, "invalid-prior"),
    ({"prior": {}}, "invalid-prior"),
    ({"prior": "/etc/passwd"}, "invalid-prior"),
    ({"prior": "guess"}, "invalid-prior"),
    ({"prior_epsilon": "0"}, "invalid-epsilon"),
    ({"prior_epsilon": "1"}, "invalid-epsilon"),
    ({"prior_epsilon": "much"}, "invalid-epsilon"),
    ({"prior_method": "wish"}, "invalid-request"),
    ({"mechanism": "magic"}, "invalid-mechanism"),
    ({"mechanism": ""}, "invalid-mechanism"),
    ({"loss": "hinge"}, "invalid-loss"),
    ({"loss": "/etc/passwd"}, "invalid-loss"),
    ({"loss": {"labels": [1], "outputs": [1], "matrix": [[1]]}}, "invalid-loss"),
    ({"loss": {"labels": [1, 2], "outputs": [1], "matrix": [[1]]}}, "invalid-loss"),
    ({"loss": {"labels": [1], "outputs": [1], "matrix": [[-1]]}}, "invalid-loss"),
    ({"loss": {"labels": [1], "outputs": [1], "matrix": [[1], []]}}, "invalid-loss"),
    ({"clip": ["0", "5"]}, "invalid-mechanism"),
    ({"mechanism": "one-bit", "clip": ["5", "0"]}, "invalid-mechanism"),
    ({"mechanism": "one-bit", "clip": ["0"]}, "invalid-mechanism"),
    ({"mechanism": "one-bit", "clip": ["a", "b"]}, "invalid-mechanism"),
    ({"option": 1}, "invalid-request"),
]


def test_bad_releases_are_refused_and_cost_nothing(desk: Desk) -> None:
    assert desk.send([f"c{i}" for i in range(20)], [i * 5 for i in range(20)]).status_code == 200
    assert desk.client.post(f"/v1/batches/{desk.batch}/seal").status_code == 200
    before = desk.state()
    for change, code in RELEASES:
        answer = desk.client.post(f"/v1/batches/{desk.batch}/releases", json={"epsilon": "1"} | change)
        assert answer.json().get("code") == code, (change, answer.text)
        assert answer.status_code == (403 if code == "budget-exceeded" else 422)
        assert "/etc" not in answer.text
        assert desk.state() == before, change
    assert desk.party.spent(desk.batch) == "0"
    assert not list((desk.party.home / "work").iterdir())


def test_poisson_on_a_domain_with_negative_labels_is_refused(desk: Desk) -> None:
    batch = desk.open(desk.make("balance", domain="-5:5", label="balance"))
    desk.send(["a"], [1], batch)
    desk.client.post(f"/v1/batches/{batch}/seal")
    answer = desk.client.post(f"/v1/batches/{batch}/releases", json={"epsilon": "1", "loss": "poisson"})
    desk.refused(answer, "invalid-loss")
    assert desk.party.spent(batch) == "0"


@pytest.mark.parametrize("mechanism", ["rr-on-bins", "one-bit", "discrete-laplace"])
def test_a_domain_of_one_value_gives_a_constant_channel_still_charged(mechanism: str, desk: Desk) -> None:
    batch = desk.open(desk.make("flat", domain="7:7", label="flat"))
    desk.send(["a", "b"], [7, 9], batch)
    desk.client.post(f"/v1/batches/{batch}/seal")
    answer = desk.client.post(f"/v1/batches/{batch}/releases", json={"epsilon": "0.5", "mechanism": mechanism})
    if answer.status_code != 202:  # a mechanism may refuse such a domain, but then before it is charged
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-mechanism")
        assert desk.party.spent(batch) == "0"
        return
    desk.party.services.worker.drain()
    release = answer.json()["id"]
    end = time.monotonic() + 120
    while desk.party.state(release).state != "published":  # by the service's worker or by the line above
        assert time.monotonic() < end
        time.sleep(0.02)
    verified = verify(desk.party.bundle(release).path, desk.party.services.key.public, "features-party")
    assert set(read_message(list(verified.paths), verified.manifest)["label"].to_pylist()) == {7.0}
    assert desk.party.spent(batch) == "0.5"
