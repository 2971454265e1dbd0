"""Revisions of the features party's database."""
