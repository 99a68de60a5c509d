"""The parts of the page, one file each: from gathered values to elements."""
