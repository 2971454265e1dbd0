"""Tasks of an engine: from an iterator of Arrow batches and a small picklable job to files and one record a task.

It knows neither Spark nor the party: no settings, no database, no secret. A job holds keys of one batch, and of the
digests that it makes. Another engine that maps a function over iterators of Arrow batches can call it as it is.
"""
