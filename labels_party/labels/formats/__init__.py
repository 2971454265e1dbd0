"""The formats of an upload: bytes as they arrive in, chunks of rows out, with bounded memory."""

from labels_party.labels.formats.formats import FORMATS, Format, format_of
from labels_party.labels.formats.source import Source

__all__ = ["FORMATS", "Format", "Source", "format_of"]
