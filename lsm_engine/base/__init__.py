"""What every other package may use: errors, records, numbers with units, names."""
