"""An OIDC issuer on this machine: discovery, keys, tokens of any shape, and authorization codes that are used once."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwk, jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

AUDIENCE, CLIENT = "https://labels.example", "labels-pages"
RETURN = "https://testserver/sign-in/return"


class Issuer:
    """`requests`: paths that were asked for. `down`: whether every answer is a 503. `now`: seconds since 1970."""

    def __init__(self, now: int) -> None:
        self.now, self.requests, self.down = now, list[str](), False
        self.key: Any = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
        self.listed: list[Any] = [self.key]
        self.codes: dict[str, dict[str, str]] = {}
        self.changes: dict[str, Any] = {}  # of the claims of tokens for codes
        self.people: dict[str, dict[str, Any]] = {}  # claims by subject, of those whom the sign-in page offers
        self.redirect = RETURN
        self.refusal: dict[str, Any] | None = None  # what a code gets in place of a token, with a 401
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.requests.append(self.path)
                if self.path.startswith(f"{urlsplit(issuer.url).path}/authorization?"):
                    self.offer()
                else:
                    self.answer(issuer.get(self.path))

            def offer(self) -> None:
                """A page with a link for each person, as that person's sign-in."""
                address = issuer.url + self.path.removeprefix(urlsplit(issuer.url).path)
                links = (
                    f'<p><a href="{escape(issuer.authorize(address, who))}">{who}</a></p>' for who in issuer.people
                )
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                head = '<!doctype html><html lang="en"><title>Company</title><link rel="icon" href="data:,">'
                self.wfile.write((head + "".join(links)).encode())

            def do_POST(self) -> None:
                issuer.requests.append(self.path)
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                self.answer(issuer.redeem({k: v[0] for k, v in parse_qs(body).items()}))

            def answer(self, found: dict[str, Any] | None) -> None:
                refused = found is not None and found is issuer.refusal
                self.send_response(503 if found is None or issuer.down else 401 if refused else 200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(found).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/realms/ads"
        self.named = self.url  # in the discovery document

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def settings(self, **more: Any) -> dict[str, Any]:
        return {"oidc_issuer": self.url, "oidc_audience": AUDIENCE} | more

    # --- tokens -------------------------------------------------------------------------------------------

    def claims(self, subject: str = "ada", role: str | None = "owner", **more: Any) -> dict[str, Any]:
        """Claims of a valid bearer token; None as a value leaves one out."""
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": subject, "iat": self.now, "exp": self.now + 300}
        return {k: v for k, v in (usual | {"label_dp_role": role} | more).items() if v is not None}

    def token(self, subject: str = "ada", role: str | None = "owner", **more: Any) -> str:
        return signed(self.claims(subject, role, **more), self.key)

    # --- answers ------------------------------------------------------------------------------------------

    def get(self, path: str) -> dict[str, Any] | None:
        root = urlsplit(self.url).path
        if path == f"{root}/.well-known/openid-configuration":
            ends = {f"{name}_endpoint": f"{self.url}/{name}" for name in ("authorization", "token")}
            return {"issuer": self.named, "jwks_uri": f"{self.url}/keys", **ends}
        return {"keys": [k.as_dict(private=False) for k in self.listed]} if path == f"{root}/keys" else None

    def authorize(self, address: str, subject: str = "ada", role: str = "owner") -> str:
        """What a browser is sent back to after somebody signed in at the issuer; checks what the service asked for."""
        asked = {k: v[0] for k, v in parse_qs(urlsplit(address).query).items()}
        assert address.startswith(f"{self.url}/authorization?")
        assert (asked["response_type"], asked["client_id"], asked["redirect_uri"]) == ("code", CLIENT, self.redirect)
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe()
        self.codes[code] = asked | {"sub": subject, "role": role}
        return f"{self.redirect}?{urlencode({'code': code, 'state': asked['state'], 'iss': self.url})}"

    def redeem(self, form: dict[str, str]) -> dict[str, Any] | None:
        if self.refusal is not None:
            return self.refusal
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None or form["redirect_uri"] != asked["redirect_uri"] or form["client_id"] != CLIENT:
            return None
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        if challenge.decode() != asked["code_challenge"]:
            return None
        more = {"aud": CLIENT, "nonce": asked["nonce"]} | self.people.get(asked["sub"], {}) | self.changes
        return {"id_token": self.token(asked["sub"], asked["role"], **more), "token_type": "Bearer"}


def signed(claims: dict[str, Any], key: Any, algorithm: str | None = None, **header: Any) -> str:
    """A token of these claims, signed by `key`."""
    usual = {RSAKey: "RS256", ECKey: "ES256", OKPKey: "EdDSA"}
    algorithm = algorithm or usual[type(key)]
    protected = {"alg": algorithm, "kid": key.as_dict(private=False).get("kid")} | header
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    return jws.serialize_compact(protected, json.dumps(claims).encode(), key, registry=registry)


def spelled(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    """A token with any header and any signature."""
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def another(kind: str = "RSA", kid: str = "one") -> Any:
    """A key that the issuer does not have."""
    size: Any = {"RSA": 2048, "EC": "P-256", "OKP": "Ed25519"}[kind]
    return jwk.generate_key(kind, size, {"kid": kid})
