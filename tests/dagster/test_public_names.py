"""Names of `lsm_assets`, and of modules that had another name before."""

import importlib
import subprocess
import sys

import pytest

import lsm_assets

FORMER = {
    "lsm_assets.model.changes": "Upsert",
    "lsm_assets.model.declaration": "TableDeclaration",
    "lsm_assets.model.translator": "LsmTranslator",
    "lsm_assets.table_io": "LsmIOManager",
    "lsm_assets.ledger.pinning": "input_snapshot",
    "lsm_assets.ledger.feed": "changes_to_feed",
    "lsm_assets.automation.conditions": "eager_with_compactions",
    "lsm_assets.automation.sync_sensor": "io_sync_sensor",
    "lsm_engine.io.file_io": "FileStatus",
    "lsm_engine.io.one_by_one": "OneByOne",
    "lsm_engine.io.stores": "STORES",
}


@pytest.mark.parametrize("name", lsm_assets.__all__)
def test_public_names_are_there(name):
    assert getattr(lsm_assets, name).__name__ == name
    assert name in dir(lsm_assets)


def test_a_name_that_is_not_there_is_an_attribute_error():
    assert not hasattr(lsm_assets, "no_such_name")


@pytest.mark.parametrize(("module", "name"), FORMER.items())
def test_former_modules_give_the_names_they_had(module, name):
    former = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=module):
        value = getattr(former, name)
    assert not hasattr(former, "no_such_name")
    if module.startswith("lsm_assets"):
        assert value is getattr(lsm_assets, name)


def test_a_program_of_before_runs():
    program = (
        "from lsm_assets.model.changes import Upsert, Delete\n"
        "from lsm_assets.model.declaration import TableDeclaration\n"
        "import lsm_assets.model.translator as translator\n"
        "print(Upsert.__name__, TableDeclaration.__name__, translator.LsmTranslator.__name__)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == ["Upsert", "TableDeclaration", "LsmTranslator"]
