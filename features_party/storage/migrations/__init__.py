"""Migrations of the features party's database."""
