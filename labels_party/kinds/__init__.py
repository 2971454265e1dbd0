"""What each kind of charged work plans and computes; registered in `labels_party.bootstrap`."""
