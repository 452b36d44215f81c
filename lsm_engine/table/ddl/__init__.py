"""Data definition: create and alter tables, and refuse definitions that contradict themselves."""
