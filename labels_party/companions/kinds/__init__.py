"""Plan and computation of each kind of charged work; registered in `labels_party.bootstrap`."""
