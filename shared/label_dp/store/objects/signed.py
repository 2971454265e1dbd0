"""Signed URLs of a store: their holder may fetch one object, for some minutes."""

from __future__ import annotations

from importlib.util import find_spec

from label_dp.errors import InvalidSettings, Unavailable
from label_dp.installing import pip_install
from label_dp.store.objects.address import Address

SECONDS = 600


class SignedUrls:
    """Signer of URLs for objects below `room`. Raises InvalidSettings if botocore is missing."""

    def __init__(self, address: Address, room: str) -> None:
        if find_spec("botocore") is None:
            raise InvalidSettings(f"Signed URLs need botocore: {pip_install('s3')}.")
        import botocore.session
        from botocore.config import Config

        # the style that Arrow takes: another maker's store has no host name for each bucket
        style = "path" if address.endpoint else "auto"
        self._client = botocore.session.get_session().create_client(
            "s3",
            region_name=address.region or "us-east-1",
            endpoint_url=address.endpoint,
            config=Config(signature_version="s3v4", s3={"addressing_style": style}),
        )
        self._bucket, self._prefix = address.bucket, f"{address.prefix}/{room}".lstrip("/")

    def url(self, key: str) -> str:
        """Sign the URL of an object. Raises Unavailable (no credentials)."""
        from botocore.exceptions import BotoCoreError

        params = {"Bucket": self._bucket, "Key": f"{self._prefix}/{key}"}
        try:
            return str(self._client.generate_presigned_url("get_object", Params=params, ExpiresIn=SECONDS))
        except BotoCoreError:
            raise Unavailable("No URL of the object store can be signed; look at its credentials.") from None
