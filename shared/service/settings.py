"""Settings that both services have: how requests are bounded and what the log looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field
from pydantic_settings import BaseSettings

from shared.service.logs import LogFormat

if TYPE_CHECKING:
    from shared.service.bodies import Bounds


class ServiceSettings(BaseSettings):
    max_body_bytes: int = Field(
        default=1 << 30, ge=1 << 10, description="Largest request body; larger uploads get 413."
    )
    upload_idle_seconds: float = Field(
        default=30.0, gt=0, description="An upload that sends nothing for so long gets 408."
    )
    uploads_at_once: int = Field(
        default=32, ge=1, le=1000, description="Uploads taken in at the same time; further ones get 503."
    )
    shutdown_seconds: int = Field(
        default=20, ge=1, description="How long requests may go on after SIGTERM before they are cut off."
    )
    log_format: LogFormat = Field(default="plain", description="Lines of the log: plain or json.")

    @property
    def bounds(self) -> Bounds:
        from shared.service.bodies import Bounds  # with FastAPI, which a command that serves nothing can do without

        return Bounds(self.max_body_bytes, self.upload_idle_seconds, self.uploads_at_once)
