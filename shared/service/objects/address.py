"""The address of a store, as a setting gives it: s3://BUCKET/PREFIX?region=…&endpoint_override=…"""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from shared.errors import InvalidSettings, Unavailable
from shared.service.faults import FaultHook, no_faults
from shared.service.objects.bucket import Bucket

REQUESTS = 4  # of one kind that the client makes where a store fails, further and further apart
CONNECT_SECONDS = 5.0
OPTIONS = ("region", "endpoint_override", "scheme")


def bucket_of(address: str, setting: str, faults: FaultHook = no_faults) -> Bucket:
    """The store at an address, which is asked for its bucket. Credentials are those of the usual AWS environment.

    Raises InvalidSettings naming the `setting`, never its value; Unavailable.
    """
    form = f"{setting} must be s3://BUCKET/PREFIX, with {', '.join(OPTIONS)} after a question mark as needed"
    try:
        parts = urlsplit(address)
        options = dict(parse_qsl(parts.query, strict_parsing=True, max_num_fields=len(OPTIONS))) if parts.query else {}
        endpoint = urlsplit(options["endpoint_override"]) if "://" in options.get("endpoint_override", "") else None
    except ValueError:
        raise InvalidSettings(f"The setting {form}.") from None
    if "@" in parts.netloc:
        raise InvalidSettings(f"The setting {setting} must hold no credentials; give them by the AWS environment.")
    if parts.scheme != "s3" or not parts.netloc or parts.fragment or set(options) - set(OPTIONS):
        raise InvalidSettings(f"The setting {form}.")
    if endpoint is not None:
        options |= {"scheme": endpoint.scheme, "endpoint_override": endpoint.netloc + endpoint.path.rstrip("/")}
    if options.get("scheme", "https") not in ("http", "https"):
        raise InvalidSettings(f"The setting {setting} must have the scheme http or https.")
    from pyarrow import fs

    filesystem = fs.S3FileSystem(
        **options,
        allow_delayed_open=True,  # a small object is one request
        connect_timeout=CONNECT_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=REQUESTS),
    )
    found = Bucket(filesystem, "/".join([parts.netloc, *filter(None, parts.path.split("/"))]), faults)
    if not found.there():
        raise Unavailable(f"There is no bucket as {setting} names it, or these credentials do not show it.")
    return found
