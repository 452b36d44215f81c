"""The metadata files of a table: a class for each kind, its path, contents and how it is published."""
