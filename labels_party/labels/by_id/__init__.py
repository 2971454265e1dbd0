"""Rows of ids and labels sorted bytewise by id in bounded memory: blocks, their sort, runs on disk."""
