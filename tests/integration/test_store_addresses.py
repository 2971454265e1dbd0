"""Addresses of object stores: which one a home and a database belong to, and what is no address."""

from __future__ import annotations

from pathlib import Path

import pytest

from label_dp.errors import InvalidSettings, Unavailable
from tests.support.labels import LabelsParty, label_table
from tests.support.object_store import Room

pytestmark = pytest.mark.extended


def test_another_store_than_the_databases_is_refused(bucket: Room, tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", objects=bucket.url) as party:
        party.sealed_batch(label_table(40))
    for objects in ("", bucket.url.replace(bucket.prefix, "elsewhere")):
        with pytest.raises(Unavailable, match="LABELS_PARTY_OBJECTS"):
            LabelsParty(tmp_path / "home", objects=objects)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("file:///tmp/x", "must be s3://BUCKET/PREFIX"),
        ("s3://", "must be s3://BUCKET/PREFIX"),
        ("s3://b/p?color=red", "must be s3://BUCKET/PREFIX"),
        ("s3://b/p?region", "must be s3://BUCKET/PREFIX"),
        ("s3://b/p?endpoint_override=ftp%3A%2F%2Fx", "scheme"),
        ("s3://key:password@b/p", "no credentials"),
    ],
)
def test_an_address_that_is_none_is_refused_without_a_word_of_it(address: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=said) as refused:
        LabelsParty(tmp_path / "home", objects=address)
    assert "password" not in str(refused.value)


def test_a_bucket_that_is_not_there_is_named_by_its_setting(bucket: Room, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="LABELS_PARTY_OBJECTS"):
        LabelsParty(tmp_path / "home", objects=bucket.url.replace("labels-and-messages", "no-such-bucket"))
