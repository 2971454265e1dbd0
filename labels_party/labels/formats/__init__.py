"""Formats of an upload: from bytes as they arrive to chunks of rows, in bounded memory."""

from labels_party.labels.formats.formats import FORMATS, Format, format_of
from labels_party.labels.formats.source import Source

__all__ = ["FORMATS", "Format", "Source", "format_of"]
