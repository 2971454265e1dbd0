"""REST interface of the features party."""
