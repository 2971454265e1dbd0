"""Files that a command writes: they appear complete or not at all, and none is overwritten unasked."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from label_dp.errors import InvalidFile, InvalidInput


def writable(path: Path, force: bool = False) -> None:
    """Refuse an output that exists (unless `force`) or whose folder does not; call it before long work.

    A device or a pipe, such as /dev/stdout, may always be written. Raises InvalidInput (exit code 2).
    """
    if not path.parent.is_dir():
        raise InvalidInput(f"The folder '{path.parent}' for '{path.name}' does not exist; make it first.")
    if not force and (path.is_file() or path.is_dir()):
        raise InvalidInput(f"'{path}' exists already. Give --force to replace it, or choose another name.")


@contextmanager
def replacing(path: Path, force: bool = False) -> Iterator[Path]:
    """A temporary path beside `path`, for a file or a folder that the body makes; it takes the name `path` at the end.

    The name appears complete or not at all, and an earlier file stays until then. The temporary name ends like
    `path`, so that writers which go by the suffix do the same. Raises InvalidInput as `writable` does, also where the
    name was taken meanwhile, and InvalidFile where it cannot be written.
    """
    writable(path, force)
    target = path.resolve()  # a link stays a link
    device = target.exists() and not target.is_file() and not target.is_dir()  # or a pipe
    temporary = target if device else target.with_name(f".{secrets.token_hex(6)}-{target.name[-100:]}")
    try:
        yield temporary
        if not device:
            _put(temporary, target, force)
    except BrokenPipeError:  # whoever read has enough
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
    """Around the output of what was charged: a refusal to write it says that `again` does so, free of charge."""
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
