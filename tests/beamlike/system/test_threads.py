"""Tasks on threads: results and errors are those of sequential execution, and no thread is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import polars as pl
import pytest

from beamlike.system.threads import Threads, in_one_thread

NAMES = "abcdef"


def failing(error: BaseException) -> Callable[[], str]:
    def task() -> str:
        raise error

    return task


def test_polars_has_one_thread_in_a_task() -> None:
    assert in_one_thread(pl.thread_pool_size) == 1
    assert in_one_thread(threading.get_ident) == threading.get_ident()


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt("stop")])
def test_what_a_task_raises_comes_out_as_it_is(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        in_one_thread(failing(error))
    assert caught.value is error


@pytest.mark.parametrize("count", [1, 2, 3])
def test_results_are_in_the_order_of_the_tasks(count: int) -> None:
    with Threads(count) as threads:
        done = threads.each({name: lambda name=name: name.upper() for name in NAMES}, here="bd")
    assert list(done.items()) == list(zip(NAMES, NAMES.upper(), strict=True))


def test_tasks_go_on_side_by_side() -> None:
    met = threading.Barrier(3)
    with Threads(3) as threads:
        assert len(threads.each(dict.fromkeys("abc", lambda: met.wait(60)))) == 3


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_several_errors_the_first_one_is_raised(count: int) -> None:
    tasks = {name: failing(ValueError(name)) if name in "cdf" else (lambda: "") for name in NAMES}
    with Threads(count) as threads, pytest.raises(ValueError, match="c"):
        threads.each(tasks, here="df")


def test_tasks_that_are_to_be_done_here_are_done_in_this_thread_in_order() -> None:
    seen: list[tuple[str, int]] = []
    tasks = {name: (lambda name=name: seen.append((name, threading.get_ident()))) for name in NAMES}
    with Threads(3) as threads:
        threads.each(tasks, here="ace")
    here = [name for name, thread in seen if name in "ace" and thread == threading.get_ident()]
    assert here == ["a", "c", "e"]


def test_the_tasks_that_took_longest_are_begun_first() -> None:
    took, now = {"a": 1, "b": 4, "c": 2, "d": 3}, [0]

    def taking(seconds: int) -> None:
        now[0] += seconds

    begun, others_begun = list[str](), threading.Event()

    def begin(name: str) -> int:
        if threading.get_ident() == here:
            assert others_begun.wait(60)
        begun.append(name)
        if len(begun) == 3:
            others_begun.set()
        return threading.get_ident()

    here = threading.get_ident()
    with Threads(2, lambda: now[0]) as threads:
        threads.each({name: partial(taking, seconds) for name, seconds in took.items()}, here="abcd")
        done = threads.each({name: partial(begin, name) for name in took})
    assert list(done) == ["a", "b", "c", "d"]
    assert begun == ["d", "c", "a", "b"]
    assert done["b"] == here


def test_a_task_that_was_started_is_done_once_and_no_thread_is_left() -> None:
    before, seen = threading.active_count(), list[int]()
    with Threads(2) as threads:
        started = [threads.start(lambda number=number: seen.append(number)) for number in range(5)]
        for one in started:
            assert one is not None
            one.result()
        threads.start(lambda: "nobody asks for it")
    assert sorted(seen) == [0, 1, 2, 3, 4]
    assert threading.active_count() == before
    with Threads(1) as alone:
        assert alone.start(lambda: "") is None


def test_what_was_started_comes_after_the_tasks_that_are_given_next() -> None:
    seen, begun, read = list[str](), threading.Event(), threading.Event()

    def here() -> None:
        assert begun.wait(60)  # so the other thread has the second task
        seen.append("first task")

    def there() -> None:
        begun.set()
        seen.append("second task")

    def later() -> None:
        seen.append("started")
        read.set()

    with Threads(2) as threads:
        started = threads.start(later)
        threads.each({"first": here, "second": there})
        assert read.wait(60)  # without a request
        assert started is not None
        started.result()
    assert seen.index("second task") < seen.index("started")


def test_what_was_started_goes_on_beside_a_single_task() -> None:
    met = threading.Barrier(2)
    with Threads(2) as threads:
        started = threads.start(lambda: met.wait(60))
        assert len(threads.each({"only": lambda: met.wait(60)})) == 1
        assert started is not None
        started.result()


def test_what_was_started_is_given_by_the_one_that_asks_if_no_task_came() -> None:
    with Threads(2) as threads:
        started = threads.start(threading.get_ident)
        assert started is not None
        assert started.result() == threading.get_ident()


def test_what_a_started_task_raises_comes_out_where_it_is_asked_for() -> None:
    with Threads(2) as threads:
        started = threads.start(failing(ValueError("no")))
        assert threads.each({"only": lambda: "done"}) == {"only": "done"}
        assert started is not None
        with pytest.raises(ValueError, match="no"):
            started.result()
