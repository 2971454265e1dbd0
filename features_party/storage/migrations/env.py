"""Alembic's entry: the connection is the caller's."""

from label_dp.store.migrations import run_env

run_env()
