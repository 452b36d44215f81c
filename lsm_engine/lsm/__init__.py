"""The shape of one bucket: sorted runs, levels, sections, and what to compact next."""
