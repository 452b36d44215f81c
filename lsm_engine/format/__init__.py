"""The file formats of the specification, a module for each: records, bytes and JSON documents."""
