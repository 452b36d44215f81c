"""The Dagster project on top of `lsm_engine`: every table's physical life as software-defined assets.

`model` is pure (engine facts → Dagster facts), `assets`, `checks` and `automation` act, and
`definitions` composes what `workspace.yaml` points at. Start reading at `factory.py`.
"""

from importlib.util import find_spec

if find_spec("dagster") is None:
    raise ImportError("Dagster is not installed: pip install 'lsm-assets[dagster]'")
