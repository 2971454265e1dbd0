"""Settings of the labels party from the environment (`LABELS_PARTY_*`), read in `bootstrap` only."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import SettingsConfigDict

from shared.errors import InvalidSettings
from shared.service.settings import ServiceSettings

PREFIX = "LABELS_PARTY_"


def _default_home() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "labels-party"


class Settings(ServiceSettings):
    """Every setting has a default that works on one machine with nothing installed."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    home: Path = Field(
        default_factory=_default_home, description="Folder that holds keys, labels, releases and the database."
    )
    database_url: SecretStr | None = Field(
        default=None, description="PostgreSQL URL; default is SQLite inside the home folder."
    )
    host: str = Field(default="127.0.0.1", description="Address that `serve` listens on.")
    port: int = Field(default=8001, ge=0, le=65535, description="Port that `serve` listens on.")
    max_body_bytes: int = Field(
        default=8 << 30, ge=1 << 10, description="Largest upload; it is read as it arrives. Larger ones get 413."
    )
    memory_limit_mb: int = Field(
        default=1024, ge=64, description="Memory that sorting and joining labels may use before it spills to disk."
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
        default=20_000_000, ge=1000, description="A message with more rows is split into several files."
    )
    worker: bool = Field(
        default=True, description="Whether `serve` also draws releases; off for replicas that only answer requests."
    )

    webhook_hosts: str = Field(
        default="",
        description="Hosts that webhooks may lead to, separated by commas; http://HOST also permits plain http there. "
        "Empty: https to public addresses, and this machine itself.",
    )

    @property
    def webhook_host_list(self) -> tuple[str, ...]:
        return tuple(host.strip() for host in self.webhook_hosts.split(",") if host.strip())

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

    def keep_kernels(self) -> None:
        """Compiled kernels are kept in the home folder, unless the environment names another place for them."""
        os.environ.setdefault("NUMBA_CACHE_DIR", str(self.home / "kernels"))

    @property
    def url(self) -> str:
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.home / 'labels-party.sqlite'}"
