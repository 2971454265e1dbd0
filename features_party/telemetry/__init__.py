"""Steps of work as metrics and traces see them."""
