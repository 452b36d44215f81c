"""A sample of the campaign of tests/fault/damage: no damage is read unnoticed, or kept by maintenance."""

import pytest

from tests.fault.damage import DAMAGES, KINDS, is_noticed_deep, kind_of, run
from tests.fault.damaged_tables import TABLES, contents, seen, sound

CASES, PARTS = 80, 2
SEED = 0


@pytest.mark.parametrize("part", range(PARTS))
def test_no_damage_is_read_unnoticed(part: int) -> None:
    found = run(SEED, range(part, CASES, PARTS))
    assert found.failures == ()
    assert sum(found.cases.values()) == CASES // PARTS
    assert len({kind for kind, _, how in found.cases if how == "refused"}) >= 8
    assert len({damage for _, damage, _ in found.cases}) >= len(set(DAMAGES)) - 2
    assert {ended for _, ended in found.acts} == {"refused", "done"}


def test_sound_tables_pass_the_campaign() -> None:
    kinds = set()
    for name in TABLES:
        told, files, before = sound(name)
        assert seen(told) == before
        assert len(before) > 5
        assert not is_noticed_deep(told), name
        assert contents(told) == files
        kinds |= {kind for path in files for kind in KINDS if kind in kind_of(path)}
    assert kinds == set(KINDS)
