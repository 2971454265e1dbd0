"""Notices of answers: queued with their publication or failure, and telling what their audience may see anyway."""

from __future__ import annotations

from typing import Any

import pytest

from labels_party.notify.outbox import ANSWER_FAILED, ANSWER_PUBLISHED
from tests.support.calibrations import charged, score_table
from tests.support.endpoint import Endpoint
from tests.support.labels import FakeClock, LabelsParty, label_table
from tests.support.predicting import ask, made, tables, with_features
from tests.support.webhooks import verify_at

pytestmark = pytest.mark.extended

LABELS = label_table(40)


def bodies(party: LabelsParty, webhook: str) -> list[dict[str, Any]]:
    found = party.client().get(f"/v1/webhooks/{webhook}/deliveries").json()
    return sorted((d["body"] for d in found), key=lambda b: str(b["data"]["id"]))


def hook(party: LabelsParty, url: str, **members: Any) -> dict[str, Any]:
    answer = party.client().post("/v1/webhooks", json={"url": url} | members)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def test_a_published_answer_is_told_as_its_audience_sees_it(timed: LabelsParty, clock: FakeClock) -> None:
    batch = timed.sealed_batch(LABELS, audiences=["features-party", "second"])
    with Endpoint() as endpoint:
        made_hook = hook(timed, endpoint.url, events=[ANSWER_PUBLISHED])
        elsewhere = hook(timed, "http://127.0.0.1:9/b", events=[ANSWER_FAILED, "release.published"])
        answer = charged(timed, batch, score_table(LABELS), "0.5")
        assert bodies(timed, made_hook["id"]) == []
        assert timed.services.pipeline.run(answer)
        assert endpoint.received == []  # queued with the publication, sent by somebody else
        assert timed.services.sender.flush() == 1
        (got,) = endpoint.received
    told = verify_at(clock().timestamp(), made_hook["secret"], got.headers, got.body)
    assert (told["type"], told["timestamp"]) == (ANSWER_PUBLISHED, "2030-01-01T00:00:00Z")
    shown = timed.client("features").get(f"/v1/answers/{answer}").json()
    assert told["data"] == {name: shown[name] for name in told["data"]}
    assert set(told["data"]) == {
        *("id", "kind", "batch", "population", "state", "epsilon", "sha256", "published", "audiences"),
    }
    assert (told["data"]["kind"], told["data"]["state"]) == ("calibration", "published")
    assert told["data"]["audiences"] == ["features-party", "second"]
    assert bodies(timed, elsewhere["id"]) == []


def test_a_failed_answer_is_told_without_reason_and_a_prediction_never(
    lite: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    y, features = tables()
    predicted = with_features(lite, y, features, population="asked", label="asked")
    everything = hook(lite, "http://127.0.0.1:9/a")
    other = hook(lite, "http://127.0.0.1:9/b", population="asked")
    answer = charged(lite, lite.sealed_batch(LABELS), score_table(LABELS))

    def broken(_: Any) -> Any:
        raise ValueError("label 7.5")

    monkeypatch.setattr(lite.services.companions.calibration, "compute", broken)
    with pytest.raises(ValueError, match=r"7\.5"):
        lite.services.pipeline.run(answer)
    (body,) = bodies(lite, everything["id"])
    assert body["type"] == ANSWER_FAILED
    assert body["data"]["state"] == "failed"
    assert body["data"]["sha256"] is body["data"]["published"] is None
    assert "7.5" not in str(body)
    assert bodies(lite, other["id"]) == []
    ask(lite, made(lite, predicted))
    assert bodies(lite, other["id"]) == []


def test_a_crash_before_the_publication_tells_nothing_and_after_it_once(lite: LabelsParty) -> None:
    made_hook = hook(lite, "http://127.0.0.1:9/a", events=[ANSWER_PUBLISHED])
    answer = charged(lite, lite.sealed_batch(LABELS), score_table(LABELS))
    pipeline, database = lite.services.pipeline, lite.services.database

    class Killed(BaseException):
        pass

    def die(name: str) -> None:
        if name == "answer.publish:before-commit":
            raise Killed

    usual, database.fault = database.fault, die
    with pytest.raises(Killed):
        pipeline.run(answer)
    database.fault = usual
    assert bodies(lite, made_hook["id"]) == []
    assert pipeline.run(answer)
    assert pipeline.run(answer) is False
    assert [b["data"]["id"] for b in bodies(lite, made_hook["id"])] == [answer]
