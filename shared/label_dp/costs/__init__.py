"""What a computation costs by its public parameters, in exact arithmetic: for who charges it and for who reads it."""
