"""Records: values that compare, hash and print by their fields."""

import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from lsm_engine.base.record import record


@record
class Pair:
    left: int
    right: str = "b"
    seen: list[int] = field(default_factory=list, compare=False, repr=False)


@record
class One:
    value: tuple[int, ...]


@record
class Nothing:
    pass


@record
class Named:
    name: str

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name.lower() == other.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())


def test_records_compare_and_hash_by_their_fields_and_class():
    assert Pair(left=1) == Pair(left=1, seen=[7])
    assert hash(Pair(left=1)) == hash(Pair(left=1, seen=[7]))
    assert Pair(left=1) != Pair(left=2)
    assert Pair(left=1) != (1, "b")
    assert One(value=(1,)) != Pair(left=1)
    assert len({One(value=(1,)), One(value=(1,)), One(value=(2,))}) == 2
    assert Nothing() == Nothing() != One(value=())
    assert hash(Nothing()) == hash(Nothing())


def test_records_print_as_dataclasses_do():
    plain = dataclass(frozen=True)(type("Pair", (), {"__annotations__": {"left": int}}))
    assert repr(plain(1)) == "Pair(left=1)"
    assert repr(Pair(left=1)) == "Pair(left=1, right='b')"
    assert repr(One(value=(1,))) == "One(value=(1,))"
    assert repr(Nothing()) == "Nothing()"


def test_what_a_class_says_itself_stays():
    assert repr(Named(name="Ada")) == "<Ada>"
    assert Named(name="Ada") == Named(name="ADA")
    assert len({Named(name="Ada"), Named(name="ADA")}) == 1


def test_records_never_change_and_are_sent_to_others():
    pair = Pair(left=1)
    with pytest.raises(FrozenInstanceError):
        pair.left = 2
    assert replace(pair, left=2).left == 2
    assert pickle.loads(pickle.dumps(pair)) == pair
    with pytest.raises(TypeError):
        Pair(1)
