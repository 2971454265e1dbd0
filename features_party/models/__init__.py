"""Models: their trainings, folders, cards, evaluation and export."""
