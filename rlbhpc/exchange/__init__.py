"""What crosses the border: results of other tools come in, ours go out to other tools."""
