"""The work on labels beyond one machine: the same passes, as jobs of Apache Spark."""
