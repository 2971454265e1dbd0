"""Long runs of what `make test` tries shortly; `make soak` runs them and keeps its last report in `results/`."""
