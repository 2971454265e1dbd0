"""Notices: signed, sent beside the work, repeated until a day is over, and silent about labels."""

from __future__ import annotations

import datetime as dt
import ipaddress
import itertools
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi.testclient import TestClient

from label_dp.errors import InvalidMechanism, SignatureInvalid
from label_dp.schemas.webhook import EVENTS
from labels_party.notify import sender as sender_module
from labels_party.notify.sender import FIRST_PAUSE, LIFE_SECONDS, LONGEST_PAUSE, pause_after
from labels_party.storage.tables import deliveries, idempotency, metadata
from tests.support.endpoint import Endpoint
from tests.support.labels import FakeClock, LabelsParty, label_table
from tests.support.webhooks import verify_at

pytestmark = pytest.mark.extended

POPULATION = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "2"}


def hook(client: TestClient, url: str, **members: Any) -> dict[str, Any]:
    answer = client.post("/v1/webhooks", json={"url": url} | members)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def notices(client: TestClient, webhook: str) -> list[dict[str, Any]]:
    return list(client.get(f"/v1/webhooks/{webhook}/deliveries").json())


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_publication_is_told_signed_and_without_a_label(timed: LabelsParty, clock: FakeClock) -> None:
    owner = timed.client()
    with Endpoint() as endpoint:
        made = hook(owner, endpoint.url, events=["release.published"])
        release = timed.release(timed.sealed_batch(label_table(40)), "0.5")
        assert endpoint.received == []  # it is queued with the publication, and sent by somebody else
        assert [d["state"] for d in notices(owner, made["id"])] == ["pending"]
        assert timed.services.sender.flush() == 1
        (got,) = endpoint.received
    told = verify_at(clock().timestamp(), made["secret"], got.headers, got.body)
    assert (told["type"], told["timestamp"]) == ("release.published", "2030-01-01T00:00:00Z")
    shown = timed.client("features").get(f"/v1/releases/{release}").json()
    assert set(told["data"]) - {"audiences"} <= set(shown)
    for name in set(told["data"]) - {"audiences"}:
        assert told["data"][name] == shown[name], name
    assert told["data"]["state"] == "published"
    (delivery,) = notices(owner, made["id"])
    assert (delivery["state"], delivery["attempts"], delivery["failure"]) == ("delivered", 1, None)
    assert delivery["id"] == got.headers["webhook-id"]
    assert timed.services.sender.flush() == 0
    with pytest.raises(SignatureInvalid):
        verify_at(clock().timestamp() + 400, made["secret"], got.headers, got.body)


def test_the_background_sender_delivers_and_a_dead_endpoint_delays_nobody(tmp_path: Path) -> None:
    go = threading.Event()
    with (
        Endpoint(held=go) as slow,
        Endpoint() as quick,
        LabelsParty(tmp_path / "home", poll_seconds=0.05) as party,
    ):
        owner = party.client()
        dead = hook(owner, "http://127.0.0.1:9/nobody")
        waiting = hook(owner, slow.url)
        hook(owner, quick.url)
        release = party.charge(party.sealed_batch(label_table(30)))
        until(lambda: owner.get(f"/v1/releases/{release}").json()["state"] == "published")
        until(lambda: len(quick.received) == 1)
        until(lambda: bool(notices(owner, dead["id"])[0]["failure"]))
        assert notices(owner, dead["id"])[0]["state"] == "pending"
        assert notices(owner, waiting["id"])[0]["state"] == "pending"  # nobody waited for its answer
        go.set()


def test_failures_are_repeated_with_the_same_id_until_it_works(timed: LabelsParty, clock: FakeClock) -> None:
    owner = timed.client()
    with Endpoint(500, 302, 404, 200) as endpoint:
        made = hook(owner, endpoint.url)
        owner.post(f"/v1/webhooks/{made['id']}/test")
        failures = []
        for _ in range(3):
            assert timed.services.sender.flush() == 0
            assert timed.services.sender.flush() == 0  # not before its time
            (delivery,) = notices(owner, made["id"])
            failures.append(delivery["failure"])
            clock.move(minutes=5)
        assert timed.services.sender.flush() == 1
        assert len({got.headers["webhook-id"] for got in endpoint.received}) == 1
        assert len({got.body for got in endpoint.received}) == 1
        assert {got.path for got in endpoint.received} == {"/hook"}  # no redirect is followed
        times = [int(got.headers["webhook-timestamp"]) for got in endpoint.received]
        assert [b - a for a, b in itertools.pairwise(times)] == [300] * 3
    assert ["500" in failures[0], "302; redirects" in failures[1], "404" in failures[2]] == [True] * 3
    assert [(d["state"], d["attempts"]) for d in notices(owner, made["id"])] == [("delivered", 4)]


def test_a_notice_is_given_up_after_a_day_and_at_once_when_gone(lite: LabelsParty, clock: FakeClock) -> None:
    owner = lite.client()
    with Endpoint(500) as failing, Endpoint(410) as gone:
        first, second = hook(owner, failing.url)["id"], hook(owner, gone.url)["id"]
        for webhook in (first, second):
            owner.post(f"/v1/webhooks/{webhook}/test")
        lite.services.sender.flush()
        assert notices(owner, second)[0]["state"] == "failed"
        for _ in range(2000):
            clock.move(minutes=1)
            lite.services.sender.flush()
        (given_up,) = notices(owner, first)
        assert given_up["state"] == "failed"
        assert 10 <= given_up["attempts"] == len(failing.received) <= 20
        assert len(gone.received) == 1


def test_pauses_grow_spread_and_fit_a_day() -> None:
    assert all(0.75 * FIRST_PAUSE <= pause_after(1) <= 1.25 * FIRST_PAUSE for _ in range(100))
    assert all(pause_after(n) <= 1.25 * LONGEST_PAUSE for n in range(1, 400))
    assert len({pause_after(3) for _ in range(20)}) > 10
    assert sum(pause_after(n) for n in range(1, 9)) < LIFE_SECONDS < sum(pause_after(n) for n in range(1, 20))


def test_what_became_of_a_notice_is_kept_for_a_month(lite: LabelsParty, clock: FakeClock) -> None:
    owner = lite.client()
    with Endpoint() as endpoint:
        made = hook(owner, endpoint.url)
        for _ in range(3):
            owner.post(f"/v1/webhooks/{made['id']}/test")
            lite.services.sender.flush()
            clock.move(days=20)
    assert len(notices(owner, made["id"])) == 2


def test_a_clock_set_back_stalls_no_notice(lite: LabelsParty, clock: FakeClock) -> None:
    owner = lite.client()
    with Endpoint(500, 200) as endpoint:
        made = hook(owner, endpoint.url)
        owner.post(f"/v1/webhooks/{made['id']}/test")
        lite.services.sender.flush()
        clock.move(days=-300)
        assert lite.services.sender.flush() == 1


def test_a_sender_that_dies_leaves_its_notice_to_the_next(tmp_path: Path, clock: FakeClock) -> None:
    class Crash(BaseException):
        """Stands for SIGKILL."""

    def crash(point: str) -> None:
        if point == "webhook.result:before-commit":
            raise Crash

    with Endpoint() as endpoint:
        first = LabelsParty(tmp_path / "home", clock=clock, faults=crash, worker=False)
        owner = first.client()
        made = hook(owner, endpoint.url)
        owner.post(f"/v1/webhooks/{made['id']}/test")
        with pytest.raises(Crash):
            first.services.sender.flush()
        first.services.database.dispose()
        with LabelsParty(tmp_path / "home", clock=clock, worker=False) as again:
            assert again.services.sender.flush() == 0
            clock.move(minutes=2)
            assert again.services.sender.flush() == 1
        assert len(endpoint.received) == 2  # at least once


def test_two_senders_share_the_work(tmp_path: Path, database_url: str, clock: FakeClock) -> None:
    parties = [LabelsParty(tmp_path / "home", database_url=database_url, clock=clock, worker=False) for _ in range(2)]
    owner = parties[0].client()
    with Endpoint(delay=0.05) as endpoint:
        made = hook(owner, endpoint.url)
        for _ in range(10):
            owner.post(f"/v1/webhooks/{made['id']}/test")
        threads = [threading.Thread(target=p.services.sender.flush) for p in parties]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({got.headers["webhook-id"] for got in endpoint.received}) == len(endpoint.received) == 10
    for party in parties:
        party.services.close()


def test_only_asked_events_of_the_asked_population_are_told(lite: LabelsParty) -> None:
    owner = lite.client()
    shop, other = lite.sealed_batch(label_table(20)), lite.sealed_batch(label_table(20, prefix="o"), "other")
    everything = hook(owner, "http://127.0.0.1:9/a")
    of_shop = hook(owner, "http://127.0.0.1:9/b", population="shop", events=["release.published"])
    failures = hook(owner, "http://127.0.0.1:9/c", events=["release.failed"])
    assert everything["events"] == list(EVENTS)
    for batch in (shop, other):
        lite.release(batch)
    assert [len(notices(owner, w["id"])) for w in (everything, of_shop, failures)] == [2, 1, 0]


def test_a_failed_release_is_told_without_its_reason(lite: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = lite.client()
    made = hook(owner, "http://127.0.0.1:9/a", events=["release.failed"])
    release = lite.charge(lite.sealed_batch(label_table(20)))

    def broken(_: Any) -> Any:
        raise InvalidMechanism("A reason that may depend on labels.")

    monkeypatch.setattr(lite.services.message.engine, "draw", broken)
    with pytest.raises(InvalidMechanism):
        lite.services.pipeline.run(release)
    (told,) = notices(owner, made["id"])
    assert (told["body"]["data"]["id"], told["body"]["data"]["state"]) == (release, "failed")
    assert "reason" not in json.dumps(told)


def test_a_publication_that_did_not_commit_is_not_told(tmp_path: Path) -> None:
    class Crash(BaseException):
        """Stands for SIGKILL."""

    armed = [True]

    def crash(point: str) -> None:
        if armed[0] and point == "release.publish:before-commit":
            raise Crash

    with LabelsParty(tmp_path / "home", faults=crash, worker=False) as party:
        owner = party.client()
        made = hook(owner, "http://127.0.0.1:9/a")
        release = party.charge(party.sealed_batch(label_table(20)))
        with pytest.raises(Crash):
            party.services.pipeline.run(release)
        assert notices(owner, made["id"]) == []
        armed[0] = False
        party.services.worker.drain()
        assert len(notices(owner, made["id"])) == 1


def test_secrets_are_shown_once_differ_and_are_stored_nowhere(timed: LabelsParty) -> None:
    owner = timed.client()
    repeated = [
        owner.post("/v1/webhooks", json={"url": "http://127.0.0.1:9/a"}, headers={"Idempotency-Key": "k"}).json()
        for _ in range(2)
    ]
    assert repeated[0] == repeated[1]
    one, two = repeated[0], hook(owner, "http://127.0.0.1:9/a")
    assert one["secret"].startswith("whsec_")
    assert one["secret"] != two["secret"]
    assert "secret" not in owner.get(f"/v1/webhooks/{one['id']}").json()
    assert all("secret" not in w for w in owner.get("/v1/webhooks").json())
    stored = timed.services.database.read(
        "t", lambda c: [c.execute(sa.select(t)).all() for t in metadata.tables.values()]
    )
    assert timed.services.database.read("t", lambda c: c.execute(sa.select(idempotency)).all())
    assert one["secret"].removeprefix("whsec_") not in repr(stored)


def test_deleting_forgets_the_notices(timed: LabelsParty) -> None:
    owner = timed.client()
    made = hook(owner, "http://127.0.0.1:9/a")
    owner.post(f"/v1/webhooks/{made['id']}/test")
    assert owner.delete(f"/v1/webhooks/{made['id']}").status_code == 204
    assert owner.get(f"/v1/webhooks/{made['id']}").status_code == 404
    assert owner.delete(f"/v1/webhooks/{made['id']}").status_code == 404
    assert timed.services.database.read("d", lambda c: c.execute(sa.select(deliveries)).all()) == []
    assert timed.services.sender.flush() == 0


WRONG = [
    {"url": "http://example.org/"},
    {"url": "https://169.254.169.254/latest/meta-data"},
    {"url": "https://10.1.2.3/"},
    {"url": "nonsense"},
    {"url": "https://example.org/", "events": []},
    {"url": "https://example.org/", "events": ["batch.sealed"]},
    {"url": "https://example.org/", "events": ["release.failed", "release.failed"]},
]


@pytest.mark.parametrize("body", WRONG)
def test_what_leads_nowhere_is_refused(body: dict[str, Any], lite: LabelsParty) -> None:
    owner = lite.client()
    answer = owner.post("/v1/webhooks", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input")
    assert owner.post("/v1/webhooks", json={"url": "https://example.org/", "population": "x"}).status_code == 404


def test_a_listed_host_only(tmp_path: Path) -> None:
    with (
        Endpoint() as endpoint,
        LabelsParty(tmp_path / "home", worker=False, webhook_hosts="http://127.0.0.1, hooks.example") as party,
    ):
        owner = party.client()
        assert owner.post("/v1/webhooks", json={"url": "https://other.example/"}).status_code == 422
        made = hook(owner, endpoint.url)
        owner.post(f"/v1/webhooks/{made['id']}/test")
        assert party.services.sender.flush() == 1


def test_no_more_than_a_hundred(lite: LabelsParty) -> None:
    owner = lite.client()
    for i in range(100):
        hook(owner, f"http://127.0.0.1:9/{i}")
    assert owner.post("/v1/webhooks", json={"url": "http://127.0.0.1:9/x"}).status_code == 409


# --- certificates --------------------------------------------------------------------------------------------


def certificate(folder: Path, name: str) -> Path:
    """A self-signed certificate with its key in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    alternative: x509.GeneralName = x509.DNSName(name)
    if name[0].isdigit():
        alternative = x509.IPAddress(ipaddress.ip_address(name))
    built = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(private + built.public_bytes(encoding))
    return path


TLS = [("hooks.example", True, 1), ("other.example", True, 0), ("hooks.example", False, 0)]


@pytest.mark.parametrize(("name", "trusted", "delivered"), TLS)
def test_https_goes_to_the_checked_address_under_the_checked_name(
    name: str, trusted: bool, delivered: int, lite: LabelsParty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = certificate(tmp_path, name)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with Endpoint(certificate=file) as endpoint:
        monkeypatch.setattr(
            "labels_party.notify.addresses._look_up", lambda _host, port: [(0, 0, 0, "", ("127.0.0.1", port))]
        )
        owner = lite.client()
        made = hook(owner, f"https://hooks.example:{endpoint.port}/hook?a=b")
        owner.post(f"/v1/webhooks/{made['id']}/test")
        assert lite.services.sender.flush() == delivered
        if delivered:
            (got,) = endpoint.received
            assert (got.path, got.headers["host"]) == ("/hook?a=b", f"hooks.example:{endpoint.port}")
        else:
            assert "no answer" in notices(owner, made["id"])[0]["failure"]


def test_a_proxy_of_the_environment_is_not_asked(lite: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with Endpoint() as endpoint:
        owner = lite.client()
        made = hook(owner, endpoint.url)
        owner.post(f"/v1/webhooks/{made['id']}/test")
        assert lite.services.sender.flush() == 1
    assert sender_module.THREADS > 1
