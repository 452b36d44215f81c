"""System tables, explanations and figures: what a table is made of, and why."""
