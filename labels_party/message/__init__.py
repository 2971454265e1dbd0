"""The message of a batch: planned, drawn, described in its signed manifest; asked for by hand or by a schedule."""
