"""Which runs made which snapshots, from which inputs and files."""
