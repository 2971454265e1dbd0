"""Alembic's entry: the connection is the caller's."""

from shared.service.migrations import run_env

run_env()
