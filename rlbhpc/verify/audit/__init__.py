"""Looking again at verdicts: second looks, style, witnesses, and what people say of chains."""
