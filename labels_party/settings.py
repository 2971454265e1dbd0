"""Settings of the labels party from the environment (`LABELS_PARTY_*`), read in `bootstrap` only."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, SecretStr

from label_dp.http.settings import ServiceSettings, listed, settings_of, state_folder


class Settings(ServiceSettings):
    """Settings of the labels party."""

    party: ClassVar[str] = "labels-party"
    model_config = settings_of(party)

    home: Path = Field(
        default_factory=partial(state_folder, party),
        description="Folder that holds keys, labels, releases and the database.",
    )
    port: int = Field(default=8001, ge=0, le=65535, description="Port that `serve` listens on.")
    max_body_bytes: int = Field(
        default=8 << 30, ge=1 << 10, description="Largest upload; it is read as it arrives. Larger ones get 413."
    )
    lease_seconds: float = Field(
        default=30.0,
        ge=1,
        le=3600,
        description="How long a worker on another host keeps a release before it may be taken over.",
    )
    poll_seconds: float = Field(
        default=1.0, gt=0, description="How often the background worker looks for work it was not told of."
    )
    rows_per_file: int = Field(
        default=20_000_000,
        ge=1000,
        description="A message with more rows, or that could be larger than 1 GiB, is split into several files.",
    )
    engine: Literal["local", "spark"] = Field(
        default="local",
        description="What draws messages, and seals files of `privatize`: this process, or a cluster of Apache Spark.",
    )
    spark_master: str = Field(
        default="local[*]", description="URL of Spark's master; every worker sees the home folder under its own path."
    )
    objects: str = Field(
        default="",
        description="Object store for labels and messages, s3://BUCKET/PREFIX?region=…&endpoint_override=…, "
        "gs://… or az://…, with the credentials of the maker's usual environment. Empty: folders of the home.",
    )
    key_service: Literal["file", "pkcs11"] = Field(
        default="file",
        description="Who holds the wrapping keys of labels and the secret of digests: files of the home, or a token.",
    )
    pkcs11_module: str = Field(default="", description="With pkcs11: path of the library of the token's maker.")
    pkcs11_token: str = Field(default="", description="With pkcs11: label of the token.")
    pkcs11_pin: SecretStr | None = Field(default=None, description="With pkcs11: its user PIN.")
    objects_signed_urls: bool = Field(
        default=False,
        description="Whether files of messages are fetched from the object store itself, by URLs that hold for ten "
        "minutes, and not through `serve`.",
    )
    four_eyes: Literal["keys", "people"] = Field(
        default="keys",
        description="Where a population needs a second person: `keys`, any other API key or name decides; `people`, "
        "who asks and who approves are two subjects of the OIDC issuer.",
    )
    webhook_hosts: str = Field(
        default="",
        description="Hosts that webhooks may lead to, separated by commas; http://HOST also permits plain http there. "
        "Empty: https to public addresses, and this machine itself.",
    )

    @property
    def webhook_host_list(self) -> tuple[str, ...]:
        return listed(self.webhook_hosts)

    def keep_kernels(self) -> None:
        """Compiled kernels are kept in the home folder, unless the environment names another place for them."""
        os.environ.setdefault("NUMBA_CACHE_DIR", str(self.home / "kernels"))
