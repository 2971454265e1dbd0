"""Tasks of an engine. Nothing here knows Spark, the home folder or its database: Arrow batches, or numbers of files,
and a small picklable job in; files and records out."""
