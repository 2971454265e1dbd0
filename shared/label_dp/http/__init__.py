"""REST service: processing of requests before and after their route, limits, pages of lists, docs, metrics."""
