"""Private keys encrypted with a passphrase, so that a backup may contain them: scrypt and AES-256-GCM."""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from label_dp.errors import InvalidFile, InvalidInput

LEAST = 16  # characters of a passphrase: a holder of the file can try any number of them
WORK, BLOCK, LANES = 1 << 17, 8, 1  # 128 MiB, about half a second
MOST_SEALED = 1 << 20  # bytes of all sealed keys; one has some hundred
BOUND = b"label-dp-backup-keys/1"


def read_passphrase(path: Path) -> str:
    """Read the only line of a file. Raises InvalidInput."""
    try:
        passphrase = path.read_text(encoding="utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The passphrase file '{path}' cannot be read ({_reason(error)}).") from None
    if len(passphrase) < LEAST or "\n" in passphrase:
        raise InvalidInput(f"The passphrase file '{path}' must hold one line of {LEAST} characters or more.")
    return passphrase


def seal(keys: dict[str, bytes], passphrase: str) -> bytes:
    """Encrypt private key files with a passphrase."""
    salt, nonce = secrets.token_bytes(16), secrets.token_bytes(12)
    plain = json.dumps({name: base64.b64encode(data).decode() for name, data in keys.items()}).encode()
    hidden = AESGCM(_derived(passphrase, salt)).encrypt(nonce, plain, BOUND)
    members = {"salt": salt, "nonce": nonce, "keys": hidden}
    return json.dumps({name: base64.b64encode(data).decode() for name, data in members.items()}).encode()


def unseal(data: bytes, passphrase: str) -> dict[str, bytes]:
    """Decrypt private key files. Raises InvalidFile."""
    try:
        members = {name: base64.b64decode(text, validate=True) for name, text in json.loads(data).items()}
        plain = AESGCM(_derived(passphrase, members["salt"])).decrypt(members["nonce"], members["keys"], BOUND)
        return {name: base64.b64decode(text) for name, text in json.loads(plain).items()}
    except InvalidTag:
        raise InvalidFile("The backup's keys do not open with this passphrase; nothing was made.") from None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise InvalidFile("The backup's keys are damaged; nothing was made.") from None


def _derived(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=32, n=WORK, r=BLOCK, p=LANES).derive(passphrase.encode())


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or "it is no text"
