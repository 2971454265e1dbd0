"""Private prediction (Dwork & Feldman 2018, Privacy-preserving Prediction): models stay here, single answers leave.

A model is trained on raw labels and never shown. A query costs ε and is answered by one random draw, of which replacing
the label of one example changes no probability by more than a factor of e^ε:

- `votes`: models of disjoint parts vote, and a soft majority answers 0 or 1 (their Theorem 4.1);
- `average`: the average of the parts' clipped predictions and noise of scale range/(parts·ε) (Lemmas 4.5 and 4.6);
- `stable`: one strongly convex learner on all examples, whose predictions a label moves by a computed bound (Theorem
  4.9), and noise of that scale;
- `walk`: the exponential projected walk along one ordered feature (Figure 1).

Features are whole numbers, `UNIT` of them to one, each within ±`UNIT`, so computations on them can be exact. Labels are
whole numbers from 0 to `GRID`, their public range.
"""

from __future__ import annotations

UNIT = 1 << 12
GRID = 1 << 20
