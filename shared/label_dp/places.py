"""Place of an error, in module and line, without its text and values, which may be labels."""

from __future__ import annotations

from types import TracebackType

OURS = ("labels_party", "features_party", __name__.split(".", 1)[0])


def place_of(traceback: TracebackType | None) -> str:
    """Format `labels_party.labels.intake:120`, followed in brackets by the line of a library that our line called."""
    own = last = ""
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", "?"))
        last = f"{module}:{traceback.tb_lineno}"
        if module.split(".", 1)[0] in OURS:
            own = last
        traceback = traceback.tb_next
    if own in ("", last):
        return last or "?"
    return f"{own} (in {last})"
