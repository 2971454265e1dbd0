"""Addresses of stores, in settings of the form s3://BUCKET/PREFIX?region=…&endpoint_override=…, gs://… or az://…."""

from __future__ import annotations

import contextlib
import os
from configparser import ConfigParser, Error
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from label_dp.errors import InvalidSettings, Unavailable
from label_dp.installing import pip_install
from label_dp.store.faults import FaultHook, no_faults
from label_dp.store.objects.bucket import Bucket

if TYPE_CHECKING:
    from obstore.store import (
        AzureConfig,
        AzureStore,
        ClientConfig,
        GCSStore,
        RetryConfig,
        S3Config,
        S3Credential,
        S3Store,
    )

REQUESTS = 4  # attempts of the client for each request, with growing pauses
CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 30.0  # a request moves a part of an object at most
RETRY_SECONDS = 20.0  # no request is repeated later; three tries of an object end so within about 90 s
OPTIONS = ("region", "endpoint_override", "scheme")
READ_AGAIN = timedelta(minutes=5)  # the file of credentials, which may be replaced


@dataclass(frozen=True)
class Address:
    """Address of a bucket, or of a container of Azure. `host`: host and port of a store other than Amazon's, else
    None."""

    bucket: str
    prefix: str
    region: str | None = None
    host: str | None = None
    scheme: str = "https"
    maker: str = "s3"
    account: str | None = None  # of Azure, where an address names it

    @property
    def endpoint(self) -> str | None:
        return self.host and f"{self.scheme}://{self.host}"

    @classmethod
    def parse(cls, address: str, setting: str) -> Address:
        """Parse a setting's value. Raises InvalidSettings naming the `setting`, never its value."""
        form = (
            f"{setting} must be s3://BUCKET/PREFIX, with {', '.join(OPTIONS)} after a question mark as needed, "
            "gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
        )
        try:
            parts = urlsplit(address)
            pairs = parse_qsl(parts.query, strict_parsing=True, max_num_fields=len(OPTIONS)) if parts.query else []
            options = dict(pairs)
            host = options.get("endpoint_override")
            endpoint = urlsplit(host) if host is not None and "://" in host else None
        except ValueError:
            raise InvalidSettings(f"The setting {form}.") from None
        if "@" in parts.netloc:
            raise InvalidSettings(f"The setting {setting} must hold no credentials; give them by the environment.")
        keywords = {"s3": OPTIONS, "gs": (), "az": ()}.get(parts.scheme)
        if keywords is None or not parts.netloc or parts.fragment or set(options) - set(keywords):
            raise InvalidSettings(f"The setting {form}.")
        scheme = options.get("scheme", "https")
        if endpoint is not None:
            host, scheme = endpoint.netloc + endpoint.path.rstrip("/"), endpoint.scheme
        if scheme not in ("http", "https"):
            raise InvalidSettings(f"The setting {setting} must have the scheme http or https.")
        prefix = "/".join(filter(None, parts.path.split("/")))
        return cls(parts.netloc, prefix, options.get("region"), host, scheme, parts.scheme)


def bucket_of(address: Address, setting: str, faults: FaultHook = no_faults) -> Bucket:
    """Open the bucket at an address and check that it exists. Raises InvalidSettings, Unavailable."""
    bucket = Bucket(store_of(address, setting), address.prefix, faults)
    if not bucket.there():
        raise Unavailable(f"There is no bucket as {setting} names it, or these credentials do not show it.")
    return bucket


def store_of(address: Address, setting: str) -> S3Store | GCSStore | AzureStore:
    """Make the client of a store, with credentials of the maker's usual environment; nothing is sent. Raises
    InvalidSettings."""
    if find_spec("obstore") is None:
        raise InvalidSettings(f"The store that {setting} names needs obstore: {pip_install('stores')}.")
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore, S3Store

    client: ClientConfig = {
        "allow_http": address.scheme == "http",
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "timeout": timedelta(seconds=REQUEST_SECONDS),
    }
    retry: RetryConfig = {"max_retries": REQUESTS - 1, "retry_timeout": timedelta(seconds=RETRY_SECONDS)}
    try:
        if address.maker == "gs":
            return GCSStore(address.bucket, client_options=client, retry_config=retry)
        if address.maker == "az":
            account: AzureConfig = {} if address.account is None else {"account_name": address.account}
            return AzureStore(address.bucket, config=account, client_options=client, retry_config=retry)
        endpoint = address.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        # another maker's store has no host name for each bucket, and no certificate covers a name with dots
        config: S3Config = {"virtual_hosted_style_request": not endpoint and "." not in address.bucket}
        if address.region:
            config["region"] = address.region
        if endpoint:
            config["endpoint"] = endpoint
        config["disable_bulk_delete"] = True  # not every maker has it
        provider = None
        if "AWS_ACCESS_KEY_ID" not in os.environ:
            with contextlib.suppress(LookupError):
                _of_file()
                provider = _of_file
        return S3Store(
            address.bucket, config=config, client_options=client, retry_config=retry, credential_provider=provider
        )
    except (BaseError, ValueError):  # its text may quote the environment
        raise InvalidSettings(
            f"The store that {setting} names needs an account or credentials that the environment does not give."
        ) from None


def _of_file() -> S3Credential:
    """Read the keys of AWS's file of credentials, which obstore does not. Raises LookupError if there are none."""
    profile = os.environ.get("AWS_PROFILE", "default")
    file = ConfigParser(interpolation=None)
    try:
        file.read(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path("~/.aws/credentials").expanduser())
        section = file[profile]
        return {
            "access_key_id": section["aws_access_key_id"],
            "secret_access_key": section["aws_secret_access_key"],
            "token": section.get("aws_session_token"),
            "expires_at": datetime.now(UTC) + READ_AGAIN,
        }
    except (OSError, KeyError, Error, RuntimeError, UnicodeDecodeError):  # RuntimeError: this user has no home
        raise LookupError("the file of credentials has no keys") from None
