"""Labels for those who train in their own stack, in Python: feature frames in, frames with labels out.

    from features_party.integrations.frames import labeled_frame

    frame = labeled_frame(["day-1.parquet", "day-2.parquet"], features, id_column="click_id", as_="pandas")

As on the command line, every message is verified and accounted for in this party's own audit store first; settings
(`FEATURES_PARTY_HOME` ...) come from the environment.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from features_party.bootstrap import bootstrap
from features_party.files.jobs import read_for_training
from features_party.models.trainer import check_one_label
from features_party.tables.feature_tables import FeatureTable, feature_table
from features_party.tables.join import check_correctable, join, refuse_taken
from features_party.tables.unmatched import WATCHED
from features_party.training.correction import check_correction
from features_party.training.fitting import judged
from label_dp.columnar.csv_types import exact_types, with_types
from label_dp.columnar.frames import Frame, as_table
from label_dp.columnar.parts import TableParts
from label_dp.columnar.tables import is_parquet, require_columns
from label_dp.documents.manifest import Manifest
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import InvalidInput
from label_dp.installing import pip_install
from label_dp.store.table_files import table_at

PathLike: TypeAlias = str | os.PathLike[str]
Messages: TypeAlias = PathLike | Iterable[PathLike]
Kind = Literal["arrow", "pandas", "polars"]
KINDS: dict[str, Kind] = {"pandas": "pandas", "polars": "polars"}  # by the module of a frame
INDEX = "the index"


@dataclass(frozen=True)
class LabelSource:
    """Verified messages, accounted for in our audit store, that give labels to frames of features."""

    messages: tuple[Path, ...]
    manifests: tuple[Manifest, ...]
    key: PathLike | VerifyingKey | None = None
    home: PathLike | None = None

    def labeled(self, features: Frame | PathLike, *, id: str, correction: str = "auto", as_: Kind | None = None) -> Any:
        """Return the rows of `features` with labels, as `labeled_frame` does; a frame of the kind that came, an Arrow
        table of a path. Raises as `labeled_frame`."""
        kind = as_ or KINDS.get(type(features).__module__.split(".")[0], "arrow")
        return labeled_frame(
            self.messages, features, id_column=id, labels_key=self.key, correction=correction, as_=kind, home=self.home
        )


def accept(
    messages: Messages, *, key: PathLike | VerifyingKey | None = None, home: PathLike | None = None
) -> LabelSource:
    """Verify messages and account for them in our audit store, as `features-party train` does; safe to repeat.

    `key`: the labels party's public key (default: the pinned one). Raises VerificationFailed kinds, InvalidFile."""
    paths = tuple(paths_of(messages))
    with closing(bootstrap(chosen=at_home(home))) as party:
        manifests = [message.manifest for message in party.messages.accept_all(list(paths), key_of(key))]
    return LabelSource(paths, tuple(manifests), key, home)


def at_home(home: PathLike | None) -> dict[str, Path]:
    """Return the settings that a home is, for `bootstrap`."""
    return {} if home is None else {"home": Path(home).absolute()}


def labeled_frame(
    messages: Messages,
    features: Frame | PathLike,
    *,
    id_column: str,
    labels_key: PathLike | VerifyingKey | None = None,
    correction: str = "auto",
    as_: Kind = "arrow",
    home: PathLike | None = None,
) -> Any:
    """Return the rows of `features` that have a label, in their order, with four more columns: `raw_label`,
    `corrected_label` and `noise_variance` (float64; variance of the corrected label, in squared label units) and
    `release`.

    Classes have their names as `raw_label`; more than two classes have no corrected columns. `messages` are paths as
    `--message` takes them, `features` an Arrow table, a pandas or polars frame or a path; column types stay, an index
    does not. An example in several messages has a row for each. `labels_key` None: the pinned key that a message names;
    `home`: folder of our audit store and keys (default: FEATURES_PARTY_HOME). Raises the errors of `join`:
    VerificationFailed, InvalidTable, InvalidRows ...
    """
    check_correction(correction)
    to_kind = _converter(as_)
    with closing(bootstrap(chosen=at_home(home))) as party:
        if isinstance(features, str | os.PathLike):
            source = table_at(features)
            read = read_for_training(party.settings, source, id_column, None)
            table = read.whole
            if source.csv if isinstance(source, TableParts) else not is_parquet(source):
                table = with_types(table, exact_types([table], read.features.column_names))
        else:
            table = as_table(features)
            read = feature_table(table, id_column)
        refuse_taken(table.column_names)
        accepted = party.messages.accept_all(paths_of(messages), key_of(labels_key))
        check_one_label(accepted)
        check_correctable(accepted, correction)
        matches = join(accepted, read, correction, WATCHED)
        if matches.counts.unmatched_warning is not None:
            warnings.warn(matches.counts.unmatched_warning, stacklevel=2)
        labelled = matches.labelled(table)
    return to_kind(labelled)


def noise_weights(frame: Frame) -> npt.NDArray[np.float64]:
    """Return float64[n] of mean 1, the information in each row of a `labeled_frame`, for the `sample_weight` of any
    learner.

    Weights are inverse to the noise variance plus the variance of the labels without noise. They are equal if all rows
    have equal noise, as within one message. Raises InvalidTable if columns of `labeled_frame` are missing.
    """
    table = as_table(frame)
    require_columns(table.column_names, ["corrected_label", "noise_variance"], "the frame")
    labels, noise = (np.asarray(table[name].to_numpy(), np.float64) for name in ("corrected_label", "noise_variance"))
    weights = judged(labels, noise, math.inf)[1]
    return np.ones(len(labels)) if weights is None else weights


def identified(frame: Frame, id_column: str | None) -> FeatureTable:
    """Take a frame as features; None: the index of a pandas frame has the ids. Raises InvalidInput, and InvalidTable
    and InvalidRows as `read_features`."""
    if id_column is not None:
        return feature_table(as_table(frame), id_column, "X")
    index = getattr(frame, "index", None)
    if index is None or type(frame).__module__.split(".")[0] != "pandas":
        raise InvalidInput("id_column=None takes the ids of the index of a pandas frame; name the column with ids.")
    if index.nlevels > 1:
        raise InvalidInput("The index of the frame has several levels (a MultiIndex); ids are one level, or a column.")
    import pyarrow as pa

    ids = pa.array(index.astype("string") if index.dtype == object else index)
    return feature_table(as_table(frame).append_column(INDEX, ids), INDEX, "X")


def paths_of(messages: Messages) -> list[Path]:
    """List the paths. Raises InvalidInput if there are none."""
    named = [messages] if isinstance(messages, str | os.PathLike) else list(messages)
    if not named:
        raise InvalidInput("Name at least one message.")
    return [Path(path) for path in named]


def key_of(labels_key: PathLike | VerifyingKey | None) -> VerifyingKey | None:
    """Load the key if it is a path. Raises InvalidFile."""
    if labels_key is None or isinstance(labels_key, VerifyingKey):
        return labels_key
    return VerifyingKey.load(Path(labels_key))


def _converter(kind: str) -> Any:
    """Return a function from an Arrow table to that kind of frame. Raises InvalidInput if its library is missing."""
    try:
        if kind == "arrow":
            return lambda table: table
        if kind == "pandas":
            import pandas  # noqa: F401 - Arrow converts; it must be there

            return lambda table: table.to_pandas()
        if kind == "polars":
            import polars

            return polars.from_arrow
    except ImportError:
        raise InvalidInput(f"{kind} is not installed: {pip_install(kind)}.") from None
    raise InvalidInput(f"There is no frame '{kind}'; choose arrow, pandas or polars.")
