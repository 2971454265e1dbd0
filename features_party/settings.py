"""Settings of the features party, from the environment (`FEATURES_PARTY_*`). Read in `bootstrap` only."""

from __future__ import annotations

import os
import ssl
from functools import partial
from pathlib import Path
from typing import ClassVar

from pydantic import Field, SecretStr, field_validator
from pydantic_core import PydanticCustomError

from label_dp.client.tls import trusted
from label_dp.documents.invitation import service_url
from label_dp.errors import InvalidInput
from label_dp.http.settings import ServiceSettings, settings_of, state_folder
from label_dp.quota import memory_bytes, processors


class Settings(ServiceSettings):
    """Settings of the features party."""

    party: ClassVar[str] = "features-party"
    model_config = settings_of(party)

    home: Path = Field(
        default_factory=partial(state_folder, party), description="Folder of messages, models, keys and the database."
    )
    objects: str = Field(
        default="",
        description="Object store for messages, tables and models, s3://BUCKET/PREFIX?region=…&endpoint_override=…, "
        "gs://… or az://…, with the credentials of the maker's usual environment. Empty: folders of the home.",
    )
    name: str = Field(
        default="features-party", min_length=1, max_length=200, description="Our name among a message's audiences."
    )
    port: int = Field(default=8002, ge=0, le=65535, description="Port that `serve` listens on.")
    data_dir: Path | None = Field(
        default=None, description="Folder whose feature tables the service may read by path; unset: uploads only."
    )
    labels_urls: tuple[str, ...] = Field(
        default=(),
        description="Labels parties (a JSON list of URLs) the service calls, and to which alone it sends "
        "`labels_api_key`; empty: any, with a key of the caller's.",
    )
    file_urls: tuple[str, ...] = Field(
        default=(),
        description="Object stores (a JSON list of URLs) to which a labels party may send us for the files of a "
        "message; empty: none where `labels_urls` are listed, else https to public addresses.",
    )
    labels_api_key: SecretStr | None = Field(default=None, description="Our API key at the labels party.")
    labels_authority: Path | None = Field(
        default=None,
        description="PEM file of the only authorities that labels parties' certificates may come from; unset: the "
        "machine's.",
    )
    labels_certificate: Path | None = Field(
        default=None, description="PEM file of our certificate and its key, for labels parties that ask for one."
    )
    model_key: Path | None = Field(
        default=None,
        description="Public key file (.pub) of another features party whose models are loaded as if they were ours; "
        "unset: models of our own key alone.",
    )
    otlp_endpoint: str = Field(
        default="",
        description="Collector of OpenTelemetry (OTLP over HTTP) that traces of `serve` go to; empty: no traces.",
    )
    threads: int = Field(default_factory=lambda: min(processors(), 8), ge=1, le=1024, description="For training.")
    training_memory_mb: int | None = Field(
        default=None,
        ge=1,
        description="Largest feature table, in memory, that is stored or trained on; default half of the machine's.",
    )

    @field_validator("labels_urls", "file_urls")
    @classmethod
    def _plain(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(service_url(url) for url in value)
        except InvalidInput:  # its text would be quoted with the prefix of a ValueError
            raise PydanticCustomError(
                "labels_url", "must be URLs such as http(s)://host[:port][/path], without user name, query or fragment"
            ) from None

    @field_validator("otlp_endpoint")
    @classmethod
    def _collector(cls, value: str) -> str:
        return cls._plain((value,))[0] if value else value

    def labels_tls(self) -> ssl.SSLContext | bool:
        """How a client verifies labels parties. Raises InvalidSettings."""
        return trusted(self.labels_authority, self.labels_certificate, "FEATURES_PARTY_LABELS")

    @property
    def table_bytes(self) -> int:
        """Of a feature table in memory: as set, or half of the machine's (of the container's, where that is less)."""
        if self.training_memory_mb is not None:
            return self.training_memory_mb << 20
        return max(memory_bytes() // 2, 1 << 20)


# MLflow would tell its makers of each run, and print addresses among what programs read
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}


def quiet_mlflow() -> None:
    """Before MLflow is imported: its own settings, unless the environment has them."""
    for variable, value in QUIET.items():
        os.environ.setdefault(variable, value)
