"""Addresses of stores, in settings of the form s3://BUCKET/PREFIX?region=…&endpoint_override=…."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from label_dp.errors import InvalidSettings, Unavailable
from label_dp.store.faults import FaultHook, no_faults
from label_dp.store.objects.bucket import Bucket

REQUESTS = 4  # attempts of the client for each request, with growing pauses
CONNECT_SECONDS = 5.0
OPTIONS = ("region", "endpoint_override", "scheme")


@dataclass(frozen=True)
class Address:
    """Address of a bucket. `host`: host and port of a store other than Amazon's, else None."""

    bucket: str
    prefix: str
    region: str | None = None
    host: str | None = None
    scheme: str = "https"

    @property
    def endpoint(self) -> str | None:
        return self.host and f"{self.scheme}://{self.host}"

    @classmethod
    def parse(cls, address: str, setting: str) -> Address:
        """Parse a setting's value. Raises InvalidSettings naming the `setting`, never its value."""
        form = f"{setting} must be s3://BUCKET/PREFIX, with {', '.join(OPTIONS)} after a question mark as needed"
        try:
            parts = urlsplit(address)
            pairs = parse_qsl(parts.query, strict_parsing=True, max_num_fields=len(OPTIONS)) if parts.query else []
            options = dict(pairs)
            host = options.get("endpoint_override")
            endpoint = urlsplit(host) if host is not None and "://" in host else None
        except ValueError:
            raise InvalidSettings(f"The setting {form}.") from None
        if "@" in parts.netloc:
            raise InvalidSettings(f"The setting {setting} must hold no credentials; give them by the AWS environment.")
        if parts.scheme != "s3" or not parts.netloc or parts.fragment or set(options) - set(OPTIONS):
            raise InvalidSettings(f"The setting {form}.")
        scheme = options.get("scheme", "https")
        if endpoint is not None:
            host, scheme = endpoint.netloc + endpoint.path.rstrip("/"), endpoint.scheme
        if scheme not in ("http", "https"):
            raise InvalidSettings(f"The setting {setting} must have the scheme http or https.")
        prefix = "/".join(filter(None, parts.path.split("/")))
        return cls(parts.netloc, prefix, options.get("region"), host, scheme)


def bucket_of(address: Address, setting: str, faults: FaultHook = no_faults) -> Bucket:
    """Open the bucket at an address and check that it exists; credentials come from the usual AWS environment. Raises
    Unavailable."""
    from pyarrow import fs

    filesystem = fs.S3FileSystem(
        region=address.region,
        endpoint_override=address.host,
        scheme=address.scheme,
        allow_delayed_open=True,  # a small object is one request
        connect_timeout=CONNECT_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=REQUESTS),
    )
    bucket = Bucket(filesystem, f"{address.bucket}/{address.prefix}".rstrip("/"), faults)
    if not bucket.there():
        raise Unavailable(f"There is no bucket as {setting} names it, or these credentials do not show it.")
    return bucket
