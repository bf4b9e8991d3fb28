"""Which rank holds which slice of which parameter, and how the slices move when the parallelism changes."""
