"""Asset checks: the shape of the tree, and every reference in the metadata."""
