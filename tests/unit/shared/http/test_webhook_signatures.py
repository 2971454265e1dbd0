"""Standard Webhooks signatures: their published example, and everything that must not verify."""

from __future__ import annotations

import base64
import time

import pytest

from label_dp.errors import InvalidInput, SignatureInvalid
from label_dp.http.webhooks import sign_webhook, verify_webhook
from tests.support.webhooks import verify_at

# the example of the Standard Webhooks specification's own libraries
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOTICE, TIME, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_published_example() -> None:
    headers = sign_webhook(SECRET, NOTICE, TIME, BODY)
    assert headers == {"webhook-id": NOTICE, "webhook-timestamp": str(TIME), "webhook-signature": SIGNATURE}
    assert verify_at(TIME + 299, SECRET, headers, BODY) == {"test": 2432232314}


def test_names_of_headers_in_any_case_and_several_signatures() -> None:
    headers = {"Webhook-Id": NOTICE, "WEBHOOK-TIMESTAMP": str(TIME), "webhook-signature": f"v1,AAAA v2,x {SIGNATURE}"}
    assert verify_at(TIME - 299, SECRET, headers, BODY)


WRONG = [
    {"webhook-id": "msg_other"},
    {"webhook-timestamp": str(TIME + 1)},
    {"webhook-timestamp": "٣"},
    {"webhook-timestamp": ""},
    {"webhook-timestamp": "1" * 400},
    {"webhook-id": ""},
    {"webhook-signature": ""},
    {"webhook-signature": "v1,"},
    {"webhook-signature": "v1,????"},
    {"webhook-signature": SIGNATURE.replace("v1", "v1a")},
    {"webhook-signature": SIGNATURE.replace("g", "h", 1)},
    {"webhook-signature": "v1,\u00e9"},
]


@pytest.mark.parametrize("changed", WRONG)
def test_a_changed_header_is_refused(changed: dict[str, str]) -> None:
    headers = sign_webhook(SECRET, NOTICE, TIME, BODY) | changed
    with pytest.raises(SignatureInvalid):
        verify_at(TIME, SECRET, headers, BODY)


def test_a_changed_body_another_secret_and_an_old_notice_are_refused() -> None:
    headers = sign_webhook(SECRET, NOTICE, TIME, BODY)
    other = "whsec_" + base64.b64encode(b"x" * 32).decode()
    for secret, body, now in ((SECRET, BODY + b" ", TIME), (other, BODY, TIME), (SECRET, BODY, TIME + 301)):
        with pytest.raises(SignatureInvalid):
            verify_at(now, secret, headers, body)


@pytest.mark.parametrize("body", [b"[]", b"nonsense", b"1"])
def test_signed_nonsense_is_refused_too(body: bytes) -> None:
    with pytest.raises(SignatureInvalid):
        verify_at(TIME, SECRET, sign_webhook(SECRET, NOTICE, TIME, body), body)


def test_a_body_that_is_no_text_is_refused() -> None:
    with pytest.raises(SignatureInvalid):
        verify_at(TIME, SECRET, sign_webhook(SECRET, NOTICE, TIME, BODY), b"\xff")


def test_a_notice_of_now_is_accepted_by_the_machines_clock() -> None:
    assert verify_webhook(SECRET, sign_webhook(SECRET, NOTICE, int(time.time()), BODY), BODY)
    with pytest.raises(SignatureInvalid):
        verify_webhook(SECRET, sign_webhook(SECRET, NOTICE, int(time.time()) - 400, BODY), BODY)


@pytest.mark.parametrize("secret", ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_é", "whsec_a"])
def test_what_is_no_secret_is_said_so(secret: str) -> None:
    with pytest.raises(InvalidInput):
        sign_webhook(secret, NOTICE, TIME, BODY)
