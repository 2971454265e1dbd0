"""Settings of the features party, from the environment (`FEATURES_PARTY_*`). Read in `bootstrap` only."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import SettingsConfigDict

from features_party.labels_url import labels_url
from shared.errors import InvalidInput, InvalidSettings
from shared.service.settings import ServiceSettings

PREFIX = "FEATURES_PARTY_"


def default_home() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "features-party"


class Settings(ServiceSettings):
    """Every setting has a default that works on one machine with nothing installed."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    home: Path = Field(default_factory=default_home, description="Folder of messages, models, keys and the database.")
    name: str = Field(
        default="features-party", min_length=1, max_length=200, description="Our name among a message's audiences."
    )
    host: str = Field(default="127.0.0.1", description="Address that `serve` listens on.")
    port: int = Field(default=8002, ge=0, le=65535, description="Port that `serve` listens on.")
    database_url: SecretStr | None = Field(default=None, description="PostgreSQL URL; default SQLite inside the home.")
    data_dir: Path | None = Field(
        default=None, description="Folder whose feature tables the service may read by path; unset: uploads only."
    )
    labels_urls: tuple[str, ...] = Field(
        default=(),
        description="Labels parties (a JSON list of URLs) the service calls, and to which alone it sends "
        "`labels_api_key`; empty: any, with a key of the caller's.",
    )
    labels_api_key: SecretStr | None = Field(default=None, description="Our API key at the labels party.")
    threads: int = Field(
        default_factory=lambda: min(os.cpu_count() or 1, 8), ge=1, le=1024, description="For training."
    )
    memory_limit_mb: int = Field(
        default=1024, ge=64, description="Memory that joining files may use before it spills to the home's disk."
    )
    training_memory_mb: int | None = Field(
        default=None,
        ge=1,
        description="Largest feature table a training reads into memory; default half of the machine's memory.",
    )
    worker: bool = Field(default=True, description="Whether `serve` also trains; off where it only predicts.")

    @field_validator("labels_urls")
    @classmethod
    def _plain(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(labels_url(url) for url in value)
        except InvalidInput:  # its text would be quoted with the prefix of a ValueError
            raise PydanticCustomError(
                "labels_url", "write each as http(s)://host[:port][/path], without user name, query or fragment"
            ) from None

    @classmethod
    def load(cls) -> Settings:
        """From the environment. Raises InvalidSettings naming the variable, never its value (URLs hold passwords)."""
        known = {PREFIX + name.upper() for name in cls.model_fields}
        unknown = sorted(name for name in os.environ if name.upper().startswith(PREFIX) and name.upper() not in known)
        if unknown:
            raise InvalidSettings(f"Unknown setting {unknown[0]}; the known ones are {', '.join(sorted(known))}.")
        try:
            return cls()
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            raise InvalidSettings(f"Setting {PREFIX}{str(first['loc'][0]).upper()}: {first['msg']}.") from None
        except Exception:  # a list that is not JSON; pydantic-settings quotes the value
            raise InvalidSettings(f"Setting {PREFIX}LABELS_URLS must be a JSON list of URLs.") from None

    @property
    def url(self) -> str:
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.home.absolute() / 'features-party.sqlite'}"
