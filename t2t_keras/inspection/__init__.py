"""Looking inside: what a trained model attends to and how it searches, and how runs went."""
