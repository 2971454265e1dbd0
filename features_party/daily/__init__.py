"""Daily training job, declared in a `pipeline.toml`: pull, train, compare with yesterday's model, keep one."""
