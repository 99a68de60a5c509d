"""Run programs that nobody has read: without root, without Docker, without network."""
