"""Background work: it runs in order, up to a failure."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from threading import Event

import pytest

from beamlike.system.behind import Behind


def test_tasks_are_done_in_order_while_nobody_waits() -> None:
    done, go = list[int](), Event()
    with closing(Behind()) as behind:
        behind.do(go.wait)
        for number in range(3):
            behind.do(partial(done.append, number))
        assert not done
        go.set()
        behind.wait()
        assert done == [0, 1, 2]


def test_after_a_failure_nothing_is_done_and_who_waits_is_told() -> None:
    done = list[int]()

    def fail() -> None:
        raise OSError("no room")

    with closing(Behind()) as behind:
        behind.do(partial(done.append, 0))
        behind.do(fail)
        behind.do(partial(done.append, 1))
        with pytest.raises(OSError, match="no room"):
            behind.wait()
        behind.do(partial(done.append, 2))
        behind.wait()
    assert done == [0]


def test_what_was_asked_for_is_done_at_the_end() -> None:
    done = list[int]()
    behind = Behind()
    behind.do(partial(done.append, 0))
    behind.close()
    behind.close()
    assert done == [0]


def test_a_failure_is_reported_by_a_check_that_does_not_wait() -> None:
    def fail() -> None:
        raise OSError("no room")

    go, is_over = Event(), Event()
    with closing(Behind()) as behind:
        behind.do(go.wait)
        behind.check()
        behind.do(fail)
        go.set()
        behind.do(is_over.set)
        behind.close()
        with pytest.raises(OSError, match="no room"):
            behind.check()
        assert not is_over.is_set()


def test_a_wait_for_some_time_says_whether_all_is_done() -> None:
    go = Event()
    with closing(Behind()) as behind:
        behind.do(go.wait)
        assert not behind.wait(within=0.0)
        assert not behind.wait(within=0.01)
        go.set()
        assert behind.wait(within=60.0)
        assert behind.wait(within=0.0)
