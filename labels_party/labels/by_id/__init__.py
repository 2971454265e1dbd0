"""Rows of ids and labels sorted bytewise by id, in memory that is bounded: blocks, their sort, runs on disk."""
