"""One module for each kind of file of the specification: facts, bytes and JSON documents."""
