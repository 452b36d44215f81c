"""Floor 6: names and lineage in a SQL database. SQLAlchemy lives here and nowhere else.

Deals in values: the table floor reads files and hands over facts. The files are the truth; every
lineage row can be rebuilt from them. `names`, `facts`, `provenance` and `edges` need no SQL; start
reading at `facts`, then `models`.
"""
