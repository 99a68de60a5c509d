"""The verifiers: one file a kind of answer."""
