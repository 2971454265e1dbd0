"""A randomizer as data: one file a kind, with its strict reader; `registry` lists the kinds."""
