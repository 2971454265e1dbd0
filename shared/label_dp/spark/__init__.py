"""What both parties need of Apache Spark: whether it is there, its session, and pieces of work as its tasks."""
