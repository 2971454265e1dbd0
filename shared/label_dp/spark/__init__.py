"""Apache Spark for both parties: whether it is there, its session, and pieces of work as its tasks."""
