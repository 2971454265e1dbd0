"""Whom a client trusts over TLS, and who it says it is."""

from __future__ import annotations

import ssl
from pathlib import Path

from label_dp.errors import InvalidSettings


def trusted(authority: Path | None, certificate: Path | None, setting: str) -> ssl.SSLContext | bool:
    """What httpx takes as `verify`: the authorities in the file `authority` and no other, and the certificate, with its
    key, that a service may ask for. Without a file of authorities it is the machine's usual ones.

    Raises InvalidSettings naming `setting`_AUTHORITY or `setting`_CERTIFICATE.
    """
    if authority is None and certificate is None:
        return True
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:  # ssl.SSLError is one
        raise _unusable(f"{setting}_AUTHORITY", "the certificates of authorities", error) from None
    if certificate is not None:
        try:
            context.load_cert_chain(certificate)
        except OSError as error:
            raise _unusable(f"{setting}_CERTIFICATE", "our certificate and its key", error) from None
    return context


def _unusable(setting: str, content: str, error: OSError) -> InvalidSettings:
    why = "it is no such file" if isinstance(error, ssl.SSLError) else error.strerror or "it cannot be read"
    return InvalidSettings(f"The setting {setting} must name a PEM file with {content} ({why}).")
