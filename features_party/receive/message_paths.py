"""Messages that a command line names: files, folders of messages, folders of one message in parts, patterns."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from label_dp.documents.bundle import ENVELOPE_SUFFIX, FOLDER_ENVELOPE
from label_dp.errors import InvalidFile

PRIOR_SUFFIX = ".prior.parquet"


def message_paths(named: Iterable[Path]) -> list[Path]:
    """The messages meant by `named`, in its order, each once; those of a folder or pattern by name.

    A shell's `*.parquet` also names priors that lie beside their messages; they are left out. Raises InvalidFile where
    a folder or pattern has no message.
    """
    found: dict[Path, None] = {}
    for path in named:
        if not path.exists() and glob.has_magic(str(path)):
            several = [Path(name) for name in sorted(glob.glob(str(path)))]  # noqa: PTH207 - the pattern may be absolute
            messages = [p for p in several if _is_message(p)]
        elif not path.exists():
            raise InvalidFile(f"There is no file or folder '{path}'.")
        elif path.is_dir() and not (path / FOLDER_ENVELOPE).exists():
            messages = [p for p in sorted(path.iterdir()) if _is_message(p)]
        else:
            messages = [] if _is_prior(path) else [path]  # what is no message is refused where it is read
            if not messages:
                continue
        if not messages:
            raise InvalidFile(
                f"There is no message in '{path}': a message is NAME.parquet with NAME.parquet{ENVELOPE_SUFFIX} beside "
                f"it, or a folder with {FOLDER_ENVELOPE}."
            )
        found |= dict.fromkeys(messages)
    if not found:
        raise InvalidFile("Only priors were named; name the messages beside them.")
    return list(found)


def _is_message(path: Path) -> bool:
    if path.is_dir():
        return (path / FOLDER_ENVELOPE).exists()
    return path.with_name(path.name + ENVELOPE_SUFFIX).exists() and not path.name.startswith(".")


def _is_prior(path: Path) -> bool:
    message = path.with_name(path.name.removesuffix(PRIOR_SUFFIX) + ".parquet")
    return path.name.endswith(PRIOR_SUFFIX) and _is_message(message) and not _is_message(path)
