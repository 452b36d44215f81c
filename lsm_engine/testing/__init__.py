"""Help for tests against tables, and of stores: tables in memory, and the FileIO contract.

`memory_file_io` is a store over a dictionary; `file_io_suite` the tests that every FileIO has to
pass, which need pytest (docs/object-stores.md has a store and its tests). May import every other
room; nothing imports this one.
"""
