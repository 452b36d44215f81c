"""The base of all packages: errors, records, quantities with units, and names."""
