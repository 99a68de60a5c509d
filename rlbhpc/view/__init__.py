"""Look through a run: rows of problems and samples, and pages of them in a browser."""
