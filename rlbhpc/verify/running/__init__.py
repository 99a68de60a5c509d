"""Many responses at once: batches, workers that can be killed, verdicts kept on disk."""
