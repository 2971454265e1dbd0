"""A day of a training job, written down in a `pipeline.toml`: pull, train, compare with yesterday's model, keep one."""
