"""Messages pulled from the object store itself by signed URLs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from features_party.receive.labels_service import LabelsService
from features_party.receive.pull import pull
from label_dp.documents.bundle import verify
from label_dp.errors import DigestMismatch, InvalidSettings, Refusal
from tests.support.labels import LabelsParty, label_table
from tests.support.object_store import Room
from tests.support.serving import serving

pytestmark = pytest.mark.extended


def quiet(_what: str, _share: float) -> None:
    """Nobody watches."""


@pytest.fixture
def signing(bucket: Room, tmp_path: Path) -> Iterator[tuple[LabelsParty, str, str]]:
    """A labels party that hands out signed URLs, its address, and a release."""
    given: dict[str, Any] = {"objects": bucket.url, "objects_signed_urls": True, "worker": False}
    with LabelsParty(tmp_path / "signing", **given) as party:
        release = party.release(party.sealed_batch(label_table(300)))
        with serving(party.client().app) as url:
            yield party, url, release


def test_a_message_is_pulled_from_the_store_itself_without_the_key(
    signing: tuple[LabelsParty, str, str], bucket: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    party, url, release = signing
    key = party.services.apikeys.create("features", "features-party")[1]
    asked: list[httpx.Request] = []
    send = httpx.Client.send

    def seen(self: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        asked.append(request)
        return send(self, request, **options)

    monkeypatch.setattr(httpx.Client, "send", seen)
    store = f"http://{bucket.address}"
    with LabelsService(url, key, files=(store,)) as service:
        pulled = pull(
            service, release, lambda _: party.services.key.public, "features-party", tmp_path / "m.parquet", quiet
        )
    assert verify(pulled.path, party.services.key.public, "features-party").manifest.n == 300
    there = [request for request in asked if str(request.url).startswith(store)]
    assert there
    assert not any("authorization" in request.headers or key in str(request.url) for request in there)
    assert all("authorization" in request.headers for request in asked if request not in there)


@pytest.mark.parametrize("stores", [(), ("https://elsewhere.example",)])
def test_a_store_that_nobody_allowed_is_not_called(
    stores: tuple[str, ...], signing: tuple[LabelsParty, str, str], bucket: Room, tmp_path: Path
) -> None:
    party, url, release = signing
    key = party.services.apikeys.create("features", "features-party")[1]
    with LabelsService(url, key, files=stores, closed=True) as service, pytest.raises(Refusal, match="FILE_URLS"):
        pull(service, release, lambda _: party.services.key.public, "features-party", tmp_path / "m.parquet", quiet)


def test_a_changed_object_behind_a_signed_url_is_refused(
    signing: tuple[LabelsParty, str, str], bucket: Room, tmp_path: Path
) -> None:
    party, url, release = signing
    (key,) = [key for key in bucket.keys("work") if key.endswith("message.parquet")]
    bucket.damage(key)
    mine = party.services.apikeys.create("features", "features-party")[1]
    with LabelsService(url, mine, files=(f"http://{bucket.address}",)) as service, pytest.raises(DigestMismatch):
        pull(service, release, lambda _: party.services.key.public, "features-party", tmp_path / "m.parquet", quiet)


def test_a_signed_url_is_for_those_who_may_read_the_message(signing: tuple[LabelsParty, str, str]) -> None:
    party, _, release = signing
    reader, other = party.client("features"), party.client("features", "somebody-else")
    sent = reader.get(f"/v1/releases/{release}/message", follow_redirects=False)
    assert (sent.status_code, sent.headers["cache-control"], sent.content) == (307, "no-store", b"")
    assert "X-Amz-Expires=600" in sent.headers["location"]
    assert reader.get(f"/v1/releases/{release}/manifest", follow_redirects=False).status_code == 200
    assert reader.head(f"/v1/releases/{release}/message", follow_redirects=False).status_code == 307
    assert other.get(f"/v1/releases/{release}/message", follow_redirects=False).status_code == 404


def test_signed_urls_need_a_store(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="LABELS_PARTY_OBJECTS"):
        LabelsParty(tmp_path / "home", objects_signed_urls=True)
