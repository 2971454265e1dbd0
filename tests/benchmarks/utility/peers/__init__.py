"""Methods of others, stated faithfully from their papers, that this service is held against in `make tables`.

What the service has already is used from there: RR-on-Bins, RRWithPrior on one prior, the optimal unbiased randomizer.
Here is what it does not have, because it needs several messages (`lp_mst`) or raw labels at the trainer
(`noisy_gradients`), and learners that others would take for corrected labels (`boosters`).
"""
