"""Verify what is stored, and repair what is broken."""
