"""Output files of commands: complete or absent, and never overwritten without --force."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from label_dp.errors import InvalidFile, InvalidInput


def writable(path: Path, force: bool = False) -> None:
    """Refuse an output that exists (unless `force`) or whose folder does not; call it before long work. A device or a
    pipe, such as /dev/stdout, is always writable. Raises InvalidInput (exit code 2)."""
    if not path.parent.is_dir():
        raise InvalidInput(f"The folder '{path.parent}' for '{path.name}' does not exist; make it first.")
    if not force and (path.is_file() or path.is_dir()):
        raise InvalidInput(f"'{path}' exists already. Give --force to replace it, or choose another name.")


@contextmanager
def replacing(path: Path, force: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path` for a file or a folder, which is renamed to `path` at the end.

    An earlier file stays until then. The temporary name has the suffix of `path`, for writers that choose by suffix.
    Raises InvalidInput as `writable`, also if the name was taken meanwhile, and InvalidFile if it cannot be written.
    """
    writable(path, force)
    target = path.resolve()  # a link stays a link
    device = target.exists() and not target.is_file() and not target.is_dir()  # or a pipe
    temporary = target if device else target.with_name(f".{secrets.token_hex(6)}-{target.name[-100:]}")
    try:
        yield temporary
        if not device:
            _put(temporary, target, force)
    except BrokenPipeError:  # the reader closed the pipe
        raise
    except FileExistsError:
        raise InvalidInput(f"'{path}' was made by someone else meanwhile; nothing was replaced.") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "its disk refused"
        raise InvalidFile(f"'{path}' cannot be written ({reason}).") from None
    finally:
        if not device:
            _remove(temporary)


@contextmanager
def paid_for(again: str) -> Iterator[None]:
    """Wrap the output of charged work: a refusal to write it says that `again` repeats the output free of charge."""
    try:
        yield
    except InvalidInput as error:
        error.detail += f" What was charged is kept: {again}, free of charge."
        raise


def _put(temporary: Path, target: Path, force: bool) -> None:
    if temporary.is_dir():
        if not force or not target.exists():
            target.mkdir()  # claims the name; a folder may be renamed onto an empty one
            temporary.rename(target)
            return
        aside = target.with_name(f".{secrets.token_hex(6)}-replaced")
        target.rename(aside)
        temporary.rename(target)
        _remove(aside)
        return
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    if force:
        temporary.replace(target)
        return
    try:
        os.link(temporary, target)  # unlike a rename, this never replaces
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists():
            raise FileExistsError from None
        temporary.replace(target)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)
