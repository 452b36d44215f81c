"""What users hold: tables and catalogs, and how they are opened."""
