"""A REST service: what happens to a request before and behind its route, limits, pages of lists, docs, metrics."""
