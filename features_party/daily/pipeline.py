"""Schema of a `pipeline.toml`."""

from __future__ import annotations

import datetime
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from features_party.integrations.tracking import Tracking
from label_dp.errors import InvalidFile, InvalidInput, InvalidRequest
from label_dp.schemas.base import Ask
from label_dp.schemas.training import Learning
from label_dp.schemas.validation import as_model

AFRESH = "none"  # value of `train.warm_start`: each run searches among all members and crossings
SEARCHED_EVERY = 7  # runs, otherwise
MOST_BYTES = 1 << 20


class From(Ask):
    """The labels party that messages are pulled from."""

    url: str | None = Field(default=None, description="Its service; default the one whose invitation was accepted.")
    since: str = Field(description="A day, such as 2026-11-01, or a release: all published since are pulled.")
    population: str | None = Field(default=None, description="Only this one (name or id).")
    wait: float = Field(default=0.0, ge=0, description="Seconds to wait for one that is not here yet.")
    api_key_file: str | None = Field(
        default=None,
        description="File with our key there; default that of its invitation, else FEATURES_PARTY_LABELS_API_KEY.",
    )


class DailyPipeline(Ask):
    """A day of the job. Paths are relative to the file that says so."""

    folder: str = Field(default="daily", description="Where messages, models and the records of runs go.")
    features: str | list[str] = Field(description="Parquet or CSV files, or patterns such as 'features/*.parquet'.")
    id_column: str = Field(description="Their column with example ids.")
    pull: From | None = Field(default=None, description="Where messages come from; else they are in `messages`.")
    messages: list[str] = Field(default=[], description="Without `pull`: messages, folders of them, or patterns.")
    labels_key: str | None = Field(default=None, description="The labels party's key; default the pinned one.")
    newest: int = Field(default=30, ge=1, le=1000, description="Train on so many of the newest messages.")
    held_out: float = Field(
        default=0.1,
        gt=0,
        le=0.5,
        description="The share of examples that no model of this folder is ever trained on; models are compared there.",
    )
    replace: Literal["better", "surely-better", "unless-surely-worse"] = Field(
        default="better",
        description="When today's model takes the place of yesterday's: by the estimate, or by its 95 % interval.",
    )
    train: Learning = Field(
        default=Learning(),
        description="As the options of `train`. Each seventh run searches among all members and crossed effects, and "
        "those between take a warm start from its model; `warm_start = 'none'` lets each run search.",
    )

    mlflow: Tracking | None = Field(default=None, description="Where each run is logged, kept or not.")

    @property
    def feature_patterns(self) -> list[str]:
        return [self.features] if isinstance(self.features, str) else self.features


def read_pipeline(path: Path) -> DailyPipeline:
    """Read a pipeline. Raises InvalidFile if it is no TOML, InvalidInput that names the member."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise InvalidFile(f"'{path}' is larger than a pipeline can be.")
        content = tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise InvalidFile(f"'{path}' cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidFile(f"'{path}' is not TOML: {error}.") from None
    try:
        pipeline = as_model(_days_as_text(content), DailyPipeline)
    except InvalidRequest as error:
        raise InvalidInput(f"'{path}': {error.detail}") from None
    if (pipeline.pull is None) == (not pipeline.messages):
        raise InvalidInput(f"'{path}': give [pull] with a labels party, or messages with paths.")
    return pipeline


def _days_as_text(value: Any) -> Any:
    """Convert TOML's days to text."""
    if isinstance(value, dict):
        return {name: _days_as_text(one) for name, one in value.items()}
    return value.isoformat() if isinstance(value, datetime.date) else value
