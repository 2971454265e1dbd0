"""TLS of a client: trusted authorities and its own certificate."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from label_dp.errors import InvalidSettings


def trusted(authority: Path | None, certificate: Path | None, setting: str) -> ssl.SSLContext | bool:
    """Return httpx's `verify`: the authorities in the file `authority` and no others, with our certificate and key.
    Without `authority`, the machine's usual ones.

    Raises InvalidSettings naming `setting`_AUTHORITY or `setting`_CERTIFICATE.
    """
    if authority is None and certificate is None:
        return True
    try:
        context = machine_authorities() if authority is None else ssl.create_default_context(cafile=authority)
    except OSError as error:  # ssl.SSLError is one
        raise _unusable(f"{setting}_AUTHORITY", "the certificates of authorities", error) from None
    if certificate is not None:
        try:
            context.load_cert_chain(certificate)
        except OSError as error:
            raise _unusable(f"{setting}_CERTIFICATE", "our certificate and its key", error) from None
    return context


def machine_authorities() -> ssl.SSLContext:
    """Return the usual authorities: those of SSL_CERT_FILE or SSL_CERT_DIR, else those of the HTTP client. Raises
    InvalidSettings naming the variable."""
    import certifi

    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not file and folder:
        if not any(Path(each).is_dir() for each in folder.split(os.pathsep)):
            raise InvalidSettings("The variable SSL_CERT_DIR names no folder of certificates; correct it, or unset it.")
        return ssl.create_default_context(capath=folder)
    try:
        return ssl.create_default_context(cafile=file or certifi.where())
    except OSError as error:
        why = "it is no such file" if isinstance(error, ssl.SSLError) else error.strerror or "it cannot be read"
        raise InvalidSettings(
            f"The variable SSL_CERT_FILE must name a PEM file with certificates of authorities ({why}); correct it, or "
            "unset it."
        ) from None


def _unusable(setting: str, content: str, error: OSError) -> InvalidSettings:
    why = "it is no such file" if isinstance(error, ssl.SSLError) else error.strerror or "it cannot be read"
    return InvalidSettings(f"The setting {setting} must name a PEM file with {content} ({why}).")
