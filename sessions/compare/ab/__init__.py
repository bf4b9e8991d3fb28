"""Full-factorial experiments on knobs: which ones matter, by how much, and which change each other's effect."""
