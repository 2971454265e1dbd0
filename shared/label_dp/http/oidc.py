"""Tokens of an OIDC issuer. A token that is signed by a key of the issuer, meant for this service and valid now becomes
the subject, role and audience that it states; everything else is refused.

Keys come from the issuer's discovery document only: what a token's header says about keys (`jku`, `x5u`, `jwk`) is not
read. They are asked for at most once a minute whatever callers send, and trusted for an hour.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import httpx
from joserfc import jwk, jws, jwt
from joserfc.errors import ClaimError, ExpiredTokenError, JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from label_dp.actors import require_name
from label_dp.client.addresses import is_local
from label_dp.client.transport import Transport
from label_dp.errors import InvalidInput, InvalidSettings, LabelDPError, Unauthenticated, Unavailable
from label_dp.logs import event
from label_dp.moments import Clock
from label_dp.store.apikeys import Identity

# signing algorithms, and the kind of their keys
ALGORITHMS = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "ES384": "EC", "EdDSA": "OKP"}
SKEW = 60  # seconds that the issuer's clock and ours may differ
PAUSE, FRESH, TRUSTED = 60.0, 600.0, 3600.0  # seconds between requests, until keys are asked for again, and at most
SECONDS, MOST_BYTES = 5.0, 1 << 19  # of a request to the issuer
MOST_TOKEN, MOST_SUBJECT, MOST_KEYS, LEAST_RSA_BITS = 1 << 14, 255, 100, 2048
AUDIENCE_CLAIM = "label_dp_audience"
NAMES = ("name", "preferred_username", "email")  # claims with a display name, the first one that fits
NEEDS_AUDIENCE = "features"  # the role whose callers read for an audience
# errors of an issuer that the log names; any other text of it stays out
ERRORS = {
    "access_denied",
    "invalid_client",
    "invalid_grant",
    "invalid_request",
    "login_required",
    "unauthorized_client",
}
FAILURES = (httpx.HTTPError, httpx.InvalidURL, JoseError, LabelDPError, ValueError, TypeError, KeyError, AttributeError)
log = logging.getLogger("label_dp.issuer")


@dataclass(frozen=True)
class Published:
    """Discovery document of an issuer with its keys. `at`: when they came, on the monotonic clock."""

    at: float
    endpoints: Mapping[str, str]
    keys: Mapping[str, RSAKey | ECKey | OKPKey] = field(repr=False)


@dataclass(frozen=True)
class ClaimRules:
    """Rules by which claims become a role. `audience`: whom bearer tokens are for; `values`: the role, or
    `features:AUDIENCE`, of each value of the role claim."""

    audience: str
    claim: str
    values: Mapping[str, str]

    @classmethod
    def of(cls, audience: str, claim: str, mapping: str, roles: tuple[str, ...], setting: str) -> ClaimRules:
        """Read the rules from settings, whose names begin with `setting`. Raises InvalidSettings."""
        if not audience or not claim:
            raise InvalidSettings(f"{setting}_ISSUER needs {setting}_AUDIENCE and {setting}_ROLE_CLAIM; set both.")
        if not mapping:
            return cls(audience, claim, {role: role for role in roles})
        try:
            values = json.loads(mapping)
            valid = bool(values) and all(str(role).partition(":")[0] in roles for role in values.values())
        except (ValueError, AttributeError):
            valid = False
        if not valid:
            raise InvalidSettings(
                f'{setting}_ROLES must be a JSON object from values of the role claim to roles, such as {{"group": '
                f'"{roles[0]}"}}; the roles are {", ".join(roles)}.'
            )
        return cls(audience, claim, {str(value): str(role) for value, role in values.items()})

    def role(self, claims: Mapping[str, Any]) -> tuple[str, str | None]:
        """Return role and audience of a token. Raises Unauthenticated if it states no role of ours, or several."""
        value: Any = claims.get(self.claim)
        if value is None:  # a path, such as realm_access.roles
            value = claims
            for part in self.claim.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
        values = value if isinstance(value, list) else [value]
        roles = {self.values[each] for each in values if isinstance(each, str) and each in self.values}
        if len(roles) != 1:
            raise refused(f"{'several roles' if roles else 'no role'}: claim {self.claim}")
        role, _, audience = roles.pop().partition(":")
        whom = audience or claims.get(AUDIENCE_CLAIM)
        if role != NEEDS_AUDIENCE:
            return role, None
        if not isinstance(whom, str) or not 1 <= len(whom) <= 200:
            raise refused("no audience")
        return role, whom


class Issuer:
    """OIDC issuer of one party. Raises InvalidSettings for an address that is not exact."""

    def __init__(self, url: str, rules: ClaimRules, clock: Clock) -> None:
        parts = urlsplit(url)
        if not secure(url) or parts.query or parts.fragment or len(url) > 200 or not _visible(url):
            raise InvalidSettings(
                "..._OIDC_ISSUER must be the https address that its tokens name, without a query, of at most 200 "
                "characters; http only on this machine."
            )
        self.url, self.rules, self.clock = url, rules, clock
        self._published: Published | None = None
        self._last_try = -math.inf
        self._turn = threading.Lock()

    def verify(self, token: str) -> Identity:
        """Return whom a bearer token stands for. Raises Unauthenticated."""
        return self.identity(self.claims(token, self.rules.audience))

    def claims(self, token: str, audience: str) -> Mapping[str, Any]:
        """Return the claims of a valid token for `audience`. Raises Unauthenticated."""
        try:
            if len(token) > MOST_TOKEN:
                raise refused("malformed token")
            header = jws.extract_compact(token.encode("ascii")).headers()
            algorithm, kid = header.get("alg"), header.get("kid")
            if algorithm not in ALGORITHMS or not isinstance(kid, str | None):
                raise refused("refused algorithm")
            published = self.published(kid)
            if published is None:
                raise refused("issuer not reached")
            key = _key_of(published, kid)
            if key is None or key.key_type != ALGORITHMS[algorithm] or key.get("alg", algorithm) != algorithm:
                raise refused("unknown signing key")
            claims = jwt.decode(token, key, algorithms=[algorithm]).claims
            exact = {"iss": {"essential": True, "value": self.url}, "aud": {"essential": True, "value": audience}}
            options: Any = exact | {name: {"essential": True} for name in ("sub", "exp", "iat")}
            jwt.JWTClaimsRegistry(now=int(self.clock().timestamp()), leeway=SKEW, **options).validate(claims)
        except ExpiredTokenError:
            raise refused("expired token") from None
        except ClaimError as error:  # of a claim that is named here, whatever the token says
            raise refused(f"invalid token: claim {error.claim}") from None
        except (JoseError, ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
            raise refused("invalid token") from None
        if claims["iss"] != self.url or not math.isfinite(claims["exp"]):  # neither a list of issuers nor NaN
            raise refused("invalid token")
        return claims

    def identity(self, claims: Mapping[str, Any]) -> Identity:
        """Return whom valid claims stand for. Raises Unauthenticated."""
        subject = claims["sub"]
        if not 1 <= len(subject) <= MOST_SUBJECT or not _visible(subject):
            raise refused("unreadable subject")
        role, audience = self.rules.role(claims)
        return Identity(self.url, subject, role, audience, _display_name(claims), int(claims["exp"]))

    def published(self, kid: str | None = None) -> Published | None:
        """Return what the issuer published in the last hour, if anything; it is asked once a minute at most."""
        with self._turn:
            now, last = monotonic(), self._published
            lacks = last is None or now - last.at > FRESH or (kid is not None and kid not in last.keys)
            if lacks and now - self._last_try >= PAUSE:
                self._last_try = now
                try:
                    last = self._published = self._ask()
                except FAILURES as error:
                    last, why = self._published, reason_of(error)  # the next minute tries again
                    log.warning(
                        "the issuer %s cannot be used: %s", self.url, why, extra=event("issuer-unusable", reason=why)
                    )
            return last if last is not None and now - last.at <= TRUSTED else None

    def check(self) -> None:
        """Log why the issuer cannot be used, if so; the first caller asks again, however soon."""
        self.published()
        self._last_try = -math.inf

    def _ask(self) -> Published:
        with client() as http:
            document = read_json(http, "GET", self.url.rstrip("/") + "/.well-known/openid-configuration")
            if document["issuer"] != self.url:
                raise Unavailable(f"its discovery document names another issuer, {str(document['issuer'])[:200]!a}")
            if not secure(document["jwks_uri"]):
                raise ValueError
            listing = read_json(http, "GET", document["jwks_uri"])["keys"]
        some = [each for each in listing[:MOST_KEYS] if isinstance(each, dict)]
        keys = {str(each.get("kid", "")): key for each in some if (key := _public_key(each)) is not None}
        endpoints = {k: v for k, v in document.items() if k.endswith("_endpoint") and isinstance(v, str) and secure(v)}
        return Published(monotonic(), endpoints, keys)


def client() -> httpx.Client:
    """Return a client for calls to an issuer: bounded in time, through the proxies of the environment."""
    return httpx.Client(timeout=SECONDS, transport=Transport(SECONDS), follow_redirects=False)


def read_json(http: httpx.Client, method: str, url: str, **fields: Any) -> Mapping[str, Any]:
    """Call an issuer and return its JSON object. Raises Unavailable for an error, which it names, ValueError for any
    other answer, httpx.HTTPError."""
    with http.stream(method, url, **fields) as answer:
        body = bytearray()
        for part in answer.iter_bytes():
            body += part
            if len(body) > MOST_BYTES:
                raise ValueError
    status = answer.status_code
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if status != httpx.codes.OK:
        error = document.get("error") if isinstance(document, dict) else None
        raise Unavailable(f"it answered {status}" + (f" {error}" if str(error) in ERRORS else ""))
    if not isinstance(document, dict):
        raise ValueError
    return document


def reason_of(error: Exception) -> str:
    """Return why a call to an issuer failed, without any text of others."""
    if isinstance(error, Unavailable):
        return error.detail
    return f"no answer ({type(error).__name__})" if isinstance(error, httpx.HTTPError) else "its answer cannot be read"


def secure(url: str) -> bool:
    """Return whether an address is https, or http on this machine."""
    parts = urlsplit(url)
    local = parts.scheme == "http" and is_local(parts.hostname or "")
    return bool(parts.hostname) and parts.username is None and (parts.scheme == "https" or local)


def refused(reason: str) -> Unauthenticated:
    """Make the refusal of a token; callers read the same for every reason."""
    return Unauthenticated("The issuer's token is not accepted here. Get a new one; the log says why.", reason)


def _key_of(published: Published, kid: str | None) -> RSAKey | ECKey | OKPKey | None:
    keys = published.keys
    return keys.get(kid) if kid is not None else next(iter(keys.values())) if len(keys) == 1 else None


def _public_key(parameters: Mapping[str, Any]) -> RSAKey | ECKey | OKPKey | None:
    """Read a key for signatures; None for one that is of another use, too short, or unknown to us."""
    if parameters.get("use", "sig") != "sig":
        return None
    try:
        key = jwk.import_key({k: v for k, v in parameters.items() if k in ("kty", "n", "e", "crv", "x", "y", "alg")})
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    if isinstance(key, RSAKey):
        return key if key.public_key.key_size >= LEAST_RSA_BITS else None
    return key if isinstance(key, ECKey | OKPKey) else None


def _visible(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _display_name(claims: Mapping[str, Any]) -> str | None:
    for claim in NAMES:
        try:
            return require_name(claims[claim])
        except (KeyError, TypeError, InvalidInput):
            continue
    return None
