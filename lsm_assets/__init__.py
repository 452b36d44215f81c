"""Dagster assets, checks, sensors, jobs, components and an I/O manager for tables of `lsm_engine`.

`model` converts facts of the engine to facts of Dagster and is pure. `ledger` reads tables and records commits. `assets`,
`checks` and `automation` are what Dagster runs. `factory.py` builds the definitions of one table: start reading there.
"""

from importlib.util import find_spec

if find_spec("dagster") is None:
    raise ImportError("Dagster is not installed: pip install 'lsm-assets[dagster]'")
