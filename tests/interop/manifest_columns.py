"""Adds a column that pypaimon 2.1.0 wants to manifests of Java 0.9.0. Runs in pypaimon's environment."""

import glob
import os
import shutil

import fastavro

COLUMN = {
    "name": "_VALUE_STATS_COLS",
    "type": ["null", {"type": "array", "items": "string"}],
    "default": None,
}


def copy_with_column(path, target):
    """Copy the table; the copy's manifests have the column, null where they lacked it."""
    shutil.copytree(path, target)
    for manifest in sorted(glob.glob(os.path.join(target, "manifest", "manifest-*"))):
        if not os.path.basename(manifest).startswith("manifest-list-"):
            add_column(manifest)


def add_column(manifest):
    """Rewrite one manifest with the column, if it lacks it."""
    with open(manifest, "rb") as source:
        reader = fastavro.reader(source)
        schema, codec, entries = reader.writer_schema, reader.codec, list(reader)
    (file_type,) = [field["type"] for field in schema["fields"] if field["name"] == "_FILE"]
    kinds = file_type if isinstance(file_type, list) else [file_type]
    record = next(kind for kind in kinds if isinstance(kind, dict) and kind["type"] == "record")
    if any(field["name"] == COLUMN["name"] for field in record["fields"]):
        return
    record["fields"].append(COLUMN)
    with open(manifest, "wb") as sink:
        fastavro.writer(sink, fastavro.parse_schema(plain(schema)), entries, codec=codec)


def plain(schema):
    """The schema without the marks that fastavro leaves in a parsed one."""
    if isinstance(schema, dict):
        return {key: plain(value) for key, value in schema.items() if not key.startswith("__")}
    return [plain(value) for value in schema] if isinstance(schema, list) else schema
