"""The cost of a computation by its public parameters, in exact arithmetic: for the writer of a charge and its
readers."""
