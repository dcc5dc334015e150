"""Real frameworks as subjects: their corrections and losses in rlcheck's calling convention."""
