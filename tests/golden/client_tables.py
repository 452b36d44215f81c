"""The metadata files of every table that a real client wrote."""

from pathlib import Path

FIXTURES = Path(__file__).parent.parent / "fixtures"
TABLES = {
    f"{table.parent.parent.name}/{table.parent.name}": table
    for table in sorted(FIXTURES.glob("*/*/table"))
}


def files(pattern: str) -> dict[str, Path]:
    """Files by a short id, over all tables."""
    return {
        f"{name}/{path.relative_to(table)}": path
        for name, table in TABLES.items()
        for path in sorted(table.glob(pattern))
    }
