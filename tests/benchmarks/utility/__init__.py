"""`make tables`: what each randomizer costs a model, in the paper's own kind of tables and figures."""
