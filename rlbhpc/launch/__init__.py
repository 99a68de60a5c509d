"""A study on a cluster: complete batch scripts, the parent that minds signals, what is going on."""
