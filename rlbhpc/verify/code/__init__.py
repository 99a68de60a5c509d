"""What a set of unit tests looks like, and how its programs are judged: one module per format."""
