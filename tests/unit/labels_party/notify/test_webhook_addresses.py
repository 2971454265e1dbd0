"""Webhooks lead nowhere that only this machine can reach, unless its operator named the host."""

from __future__ import annotations

import pytest

from label_dp.errors import InvalidInput
from labels_party.notify import addresses
from labels_party.notify.addresses import AddressRules

NAMES = {
    "public.example": ["93.184.215.14"],
    "private.example": ["10.0.0.5"],
    "both.example": ["93.184.215.14", "192.168.1.1"],
    "metadata.example": ["169.254.169.254"],
    "mapped.example": ["::ffff:169.254.169.254"],
    "six.example": ["2606:2800:21f:cb07:6820:80da:af6b:8b2c"],
    "localhost": ["127.0.0.1"],
    "rebound.example": ["127.0.0.1"],
    "127.1": ["127.0.0.1"],
}


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, port: int) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (address, port)) for address in NAMES.get(host, [host])]

    monkeypatch.setattr(addresses, "_look_up", look_up)


ALLOWED = [
    ("https://public.example/hook?x=1", ()),
    ("https://six.example/", ()),
    ("https://93.184.215.14:8443/", ()),
    ("http://127.0.0.1:9000/hook", ()),
    ("http://localhost:9000/hook", ()),
    ("http://[::1]:9000/hook", ()),
    ("http://127.1:9000/hook", ()),
    ("https://rebound.example/", ()),
    ("https://private.example/", ("private.example",)),
    ("https://PRIVATE.example/", ("private.EXAMPLE",)),
    ("http://private.example/", ("http://private.example",)),
    ("https://private.example/", ("http://private.example",)),
]
REFUSED = [
    ("http://public.example/", ()),
    ("http://rebound.example/", ()),
    ("http://private.example/", ("private.example",)),
    ("https://private.example/", ()),
    ("https://both.example/", ()),
    ("https://10.0.0.5/", ()),
    ("https://100.64.0.1/", ()),
    ("https://[fd00::1]/", ()),
    ("https://0.0.0.0/", ()),
    ("https://metadata.example/", ()),
    ("https://metadata.example/", ("metadata.example",)),
    ("http://169.254.169.254/latest", ("http://169.254.169.254",)),
    ("https://mapped.example/", ("mapped.example",)),
    ("https://[64:ff9b::a9fe:a9fe]/", ("64:ff9b::a9fe:a9fe",)),
    ("https://[64:ff9b::a00:5]/", ()),
    ("https://[2002:a00:5::1]/", ()),
    ("https://[::ffff:10.0.0.5]/", ()),
    ("https://[::10.0.0.5]/", ()),
    ("https://[::169.254.169.254]/", ("::a9fe:a9fe", "::169.254.169.254")),
    ("https://[::ffff:0:10.0.0.5]/", ()),
    ("https://[64:ff9b:1::a00:5]/", ()),
    ("https://[fec0::1]/", ()),
    ("https://192.0.0.192/", ()),
    ("https://10.5/", ()),
    ("https://0x0a000005/", ()),
    ("https://2852039166/", ("2852039166",)),
    ("https://[fe80::1%25eth0]/", ("fe80::1%25eth0",)),
    ("https://public.example/", ("other.example",)),
    ("http://127.0.0.1/", ("other.example",)),
    ("https://sub.public.example/", ("public.example",)),
    ("https://me:secret@public.example/", ()),
    ("https://public.example/#here", ()),
    ("https://public.example:99999/", ()),
    ("ftp://public.example/", ()),
    ("file:///etc/passwd", ()),
    ("https:///nohost", ()),
    ("//public.example", ()),
    ("nonsense", ()),
    ("", ()),
    ("https://p\u00fcblic.example/", ()),
    ("https://public.example/a b", ()),
    ("https://public.example/\r\nX: y", ()),
    ("https://[::1", ()),
    ("https://public.example/" + "a" * 2000, ()),
]


@pytest.mark.parametrize(("url", "hosts"), ALLOWED)
def test_allowed(url: str, hosts: tuple[str, ...]) -> None:
    target = AddressRules(hosts).resolve(url)
    assert target.address in [a for found in NAMES.values() for a in found] or target.address in url


@pytest.mark.parametrize(("url", "hosts"), REFUSED)
def test_refused(url: str, hosts: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput):
        AddressRules(hosts).resolve(url)
