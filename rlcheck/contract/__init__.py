"""What an engine and a trainer promise about the log-probs of one policy: pure functions on arrays."""
