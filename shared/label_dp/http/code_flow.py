"""Sign-in of people at an OIDC issuer: authorization code with PKCE, bound to one browser by a short-lived cookie."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from urllib.parse import urlencode

from label_dp.errors import InvalidSettings, TooManyCalls, Unavailable
from label_dp.http.oidc import ERRORS, FAILURES, Issuer, client, read_json, reason_of, refused, secure
from label_dp.http.rates import Rates
from label_dp.store.apikeys import Identity

RETURN = "/sign-in/return"
COOKIE_SECONDS = 600
EXCHANGES = 60  # codes sent to the issuer in a minute, whoever brings them


@dataclass(frozen=True)
class CodeFlow:
    """Sign-in at `issuer`. `redirect`: the exact address that the issuer sends people back to."""

    issuer: Issuer
    client_id: str
    redirect: str
    secret: str | None = field(default=None, repr=False)
    rates: Rates = field(default_factory=lambda: Rates(EXCHANGES))

    def __post_init__(self) -> None:
        """Check the settings. Raises InvalidSettings."""
        if not secure(self.redirect) or not self.redirect.endswith(RETURN) or {"?", "#"} & set(self.redirect):
            raise InvalidSettings(f"..._OIDC_REDIRECT must be https (http on this machine) and end with {RETURN}.")
        if not self.client_id or self.client_id == self.issuer.rules.audience:
            raise InvalidSettings(
                "..._OIDC_CLIENT_ID must be another name than ..._OIDC_AUDIENCE: a token for one is none for the other."
            )

    def begin(self, back: str) -> tuple[str, str]:
        """Return the issuer's address to sign in at, and the cookie that the return needs; `back`: the page after it.
        Raises Unavailable."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        endpoint = self._endpoint("authorization_endpoint")
        if endpoint is None:
            raise Unavailable(
                "The sign-in of your organisation cannot be used. Try again in a minute, or sign in with an API key. "
                "The log of this service says why."
            )
        challenge = _encoded(hashlib.sha256(verifier.encode()).digest())
        parameters = {
            "response_type": "code", "client_id": self.client_id, "redirect_uri": self.redirect,
            "scope": "openid profile email", "state": state, "nonce": nonce, "code_challenge": challenge,
            "code_challenge_method": "S256",
        }  # fmt: skip
        address = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(parameters)}"
        return address, ".".join((state, nonce, verifier, _encoded(back.encode())))

    def finish(self, cookie: str, query: Mapping[str, str]) -> tuple[Identity, str]:
        """Redeem the code of a return by the browser that began; return who signed in, and the page after it. Raises
        Unauthenticated, Unavailable (too many at once)."""
        parts, state = cookie.split("."), query.get("state", "")
        if len(parts) != 4 or not compare_digest(state.encode("utf-8", "replace"), parts[0].encode("utf-8", "replace")):
            raise refused("sign-in of another browser")
        _, nonce, verifier, back = parts
        if query.get("iss", self.issuer.url) != self.issuer.url or not query.get("code"):
            error = query.get("error")
            raise refused("sign-in refused by the issuer" + (f": {error}" if error in ERRORS else ""))
        claims = self.issuer.claims(self._redeem(query["code"], verifier), self.client_id)
        if not isinstance(claims.get("nonce"), str) or not compare_digest(claims["nonce"].encode(), nonce.encode()):
            raise refused("token of another sign-in")
        if claims.get("azp", self.client_id) != self.client_id:
            raise refused("token of another client")
        try:
            page = base64.urlsafe_b64decode(back + "=" * (-len(back) % 4)).decode("ascii")
        except ValueError:
            page = ""
        return self.issuer.identity(claims), page

    def _redeem(self, code: str, verifier: str) -> str:
        """Return the ID token of a code. Raises Unauthenticated, Unavailable."""
        try:
            self.rates.take("")
        except TooManyCalls:
            raise Unavailable("Too many sign-ins at once. Start again in a minute.") from None
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": self.redirect,
            "client_id": self.client_id, "code_verifier": verifier,
        } | ({} if self.secret is None else {"client_secret": self.secret})  # fmt: skip
        endpoint = self._endpoint("token_endpoint")
        if endpoint is None:
            raise refused("issuer not reached")
        try:
            with client() as http:
                return str(read_json(http, "POST", endpoint, data=form)["id_token"])
        except FAILURES as error:
            raise refused(f"code refused by the issuer: {reason_of(error)}") from None

    def _endpoint(self, name: str) -> str | None:
        published = self.issuer.published()
        return None if published is None else published.endpoints.get(name)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
