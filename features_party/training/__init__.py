"""Training of models on privatized labels."""
