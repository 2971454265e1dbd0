"""Joins and trainings beyond one machine, as jobs of Apache Spark."""
