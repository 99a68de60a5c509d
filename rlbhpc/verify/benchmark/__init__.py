"""The labelled benchmark of answers: cases with their verdicts and reasons, and its table."""
