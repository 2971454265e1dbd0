"""Steps of work, in metrics and traces."""
