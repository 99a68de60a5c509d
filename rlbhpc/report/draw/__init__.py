"""Charts as data, and the two ways to draw them: fluid SVG for the page, matplotlib for paper."""
