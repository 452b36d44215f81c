"""Items in tasks: few for small ones, as many as cores need for middling ones, none too large."""

import random

from lsm_engine.planning.keys import TASK_COUNT_MAX, packed

MB = 1 << 20


def test_small_items_share_a_task_and_large_ones_have_their_own():
    assert packed([], task_goal=8) == ()
    assert packed([5], task_goal=8) == ((0,),)
    assert packed([1000, 1000, 1000], task_goal=8) == ((0, 1, 2),)
    assert len(packed([20 * MB] * 3, task_goal=8)) == 3
    assert packed([500 * MB, 10, 10], task_goal=2) == ((0,), (1, 2))


def test_middling_items_make_as_many_tasks_as_keep_the_cores_busy():
    assert len(packed([2 * MB] * 100, task_goal=16)) == 16
    assert [len(task) for task in packed([2 * MB] * 16, task_goal=4)] == [4] * 4


def test_many_buckets_of_a_few_kilobytes_are_packed_by_what_opening_them_costs():
    tasks = packed([4096] * 10_000, task_goal=4)
    assert 70 <= len(tasks) <= 90
    assert max(map(len, tasks)) - min(map(len, tasks)) <= 1


def test_items_in_order_make_tasks_in_order():
    rng = random.Random(5)
    for sizes in ([], [5], [500 * MB, 10, 10], [2 * MB] * 100, [rng.choice((0, 9 * MB, 400 * MB)) for _ in range(3_000)]):  # fmt: skip
        tasks = packed(sizes, task_goal=16, in_order=True)
        assert [item for task in tasks for item in task] == list(range(len(sizes)))
        assert all(tasks)
        assert len(tasks) <= len(packed(sizes, task_goal=16))
    assert packed([500 * MB, 10, 10], task_goal=2, in_order=True) == ((0,), (1, 2))
    assert {len(task) for task in packed([2 * MB] * 96, task_goal=16, in_order=True)} == {6}


def test_every_item_has_one_task_and_no_job_has_too_many():
    rng = random.Random(3)
    for goal in (1, 4, 1000):
        sizes = [rng.choice((0, 10_000, 3 * MB, 400 * MB)) for _ in range(5_000)]
        tasks = packed(sizes, task_goal=goal)
        assert sorted(item for task in tasks for item in task) == list(range(5_000))
        assert all(list(task) == sorted(task) for task in tasks)
        assert len(tasks) <= TASK_COUNT_MAX
