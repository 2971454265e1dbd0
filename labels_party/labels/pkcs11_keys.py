"""Keys in a PKCS#11 token: a hardware module, a cloud's, or SoftHSM. Only the working key of digests leaves it.

Wrapping is AES-256-GCM inside the token, with a fresh nonce each, bound to its place. The working key is an HMAC of a
fixed text under the token's secret.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from label_dp.errors import InvalidSettings, Unavailable
from label_dp.installing import pip_install
from label_dp.store.objects.port import DamagedObject
from labels_party.labels.ciphered import DAMAGED, NONCE
from labels_party.storage.secrets import Secrets

if TYPE_CHECKING:
    from pkcs11 import Session

WRAPPING, DIGESTS = "label-dp-wrapping-", "label-dp-digests"
WORKING = b"label-dp/working key of digests/1"
TAG_BITS = 128


class TokenKeys:
    """Keys of a token; `module` is the PKCS#11 library. One session, opened at first use, serves one caller at a
    time."""

    def __init__(self, module: str, token: str, pin: str) -> None:
        self.module, self.token, self._pin = module, token, pin
        self._lock = threading.Lock()
        self._session: Session | None = None

    def __repr__(self) -> str:
        return f"TokenKeys({self.token})"

    def make(self, number: int) -> None:
        with self._opened() as session:
            self._made(session, f"{WRAPPING}{number}", "AES")

    def wrap(self, number: int, plain: bytes, place: str) -> bytes:
        from pkcs11 import GCMParams, Mechanism

        nonce = secrets.token_bytes(NONCE)
        param = GCMParams(nonce, place.encode(), TAG_BITS)
        with self._opened() as session:
            key = self._key(session, number)
            return nonce + bytes(key.encrypt(plain, mechanism=Mechanism.AES_GCM, mechanism_param=param))

    def unwrap(self, number: int, wrapped: bytes, place: str) -> bytes:
        from pkcs11 import GCMParams, Mechanism
        from pkcs11.exceptions import EncryptedDataInvalid, EncryptedDataLenRange, GeneralError

        param = GCMParams(wrapped[:NONCE], place.encode(), TAG_BITS)
        with self._opened() as session:
            key = self._key(session, number)
            try:
                key_bytes = key.decrypt(wrapped[NONCE:], mechanism=Mechanism.AES_GCM, mechanism_param=param)
            except (EncryptedDataInvalid, EncryptedDataLenRange, GeneralError):  # makers differ in what they say
                raise DamagedObject(DAMAGED) from None
            return bytes(key_bytes)

    def forget_before(self, number: int) -> list[int]:
        from pkcs11 import Attribute, ObjectClass

        with self._opened() as session:
            old_keys = {}
            for key in session.get_objects({Attribute.CLASS: ObjectClass.SECRET_KEY}):
                label = str(key[Attribute.LABEL])
                name = label.removeprefix(WRAPPING)
                if name != label and name.isdecimal() and int(name) < number:
                    old_keys[int(name)] = key
            for old in old_keys.values():
                old.destroy()
            return sorted(old_keys)

    def called(self, number: int) -> str:
        return f"key {WRAPPING}{number} of token {self.token}"

    def require(self, number: int) -> None:
        with self._opened() as session:
            self._key(session, number)
            self._named(session, DIGESTS)

    def secret(self) -> Secrets:
        from pkcs11 import Mechanism

        with self._opened() as session:
            self._made(session, DIGESTS, "GENERIC_SECRET")
            working = self._named(session, DIGESTS).sign(WORKING, mechanism=Mechanism.SHA256_HMAC)
        return Secrets(bytes(working))

    # --- parts --------------------------------------------------------------------------------------------

    def _key(self, session: Session, number: int) -> Any:
        return self._named(session, f"{WRAPPING}{number}")

    def _named(self, session: Session, label: str) -> Any:
        from pkcs11 import ObjectClass
        from pkcs11.exceptions import MultipleObjectsReturned, NoSuchKey

        try:
            return session.get_key(object_class=ObjectClass.SECRET_KEY, label=label)
        except NoSuchKey:
            raise Unavailable(
                f"The token '{self.token}' has no key '{label}'; restore it there. Nothing was changed."
            ) from None
        except MultipleObjectsReturned:
            raise Unavailable(
                f"The token '{self.token}' has several keys '{label}'; leave the one that was used."
            ) from None

    def _made(self, session: Session, label: str, kind: str) -> None:
        from pkcs11 import Attribute, KeyType, Mechanism, MechanismFlag, ObjectClass

        if list(session.get_objects({Attribute.CLASS: ObjectClass.SECRET_KEY, Attribute.LABEL: label})):
            return
        hidden = {Attribute.SENSITIVE: True, Attribute.EXTRACTABLE: False}
        if kind == "AES":
            uses, generator = MechanismFlag.ENCRYPT | MechanismFlag.DECRYPT, Mechanism.AES_KEY_GEN
            session.generate_key(
                KeyType.AES, 256, label=label, store=True, capabilities=uses, mechanism=generator, template=hidden
            )
        else:
            uses, generator = MechanismFlag.SIGN | MechanismFlag.VERIFY, Mechanism.GENERIC_SECRET_KEY_GEN
            session.generate_key(
                KeyType.GENERIC_SECRET,
                256,
                label=label,
                store=True,
                capabilities=uses,
                mechanism=generator,
                template=hidden,
            )

    @contextmanager
    def _opened(self) -> Iterator[Session]:
        """Yield the session. Raises Unavailable if the token does not answer; the next use reopens it."""
        try:
            import pkcs11
        except ModuleNotFoundError:
            raise InvalidSettings(f"The key service pkcs11 needs a package: {pip_install('pkcs11')}.") from None

        with self._lock:
            try:
                if self._session is None:
                    self._session = self._open(pkcs11.lib(self.module).get_token(token_label=self.token))
                yield self._session
            except (pkcs11.exceptions.PKCS11Error, RuntimeError) as error:
                self._session = None
                raise Unavailable(
                    f"The key service, token '{self.token}' of '{self.module}', does not answer "
                    f"({type(error).__name__}). See that it is there and its PIN is right."
                ) from None

    def _open(self, token: Any) -> Session:
        """Open a session; a process logs in to a token once, for all its sessions."""
        from pkcs11.exceptions import UserAlreadyLoggedIn

        try:
            session: Session = token.open(rw=True, user_pin=self._pin)
        except UserAlreadyLoggedIn:
            session = token.open(rw=True)
        return session
