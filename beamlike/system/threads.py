"""Several tasks of a run at once, a thread for each: all that polars does for a task, it does in that thread.

Threads inside of operations that take a millisecond cost more than they bring.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar

import attrs
import polars as pl

T = TypeVar("T")
Task = Callable[[], T]


def in_one_thread(task: Task[T]) -> T:
    """What the task gives, or raises. All operations of polars in it are done in the thread that calls this.

    Polars does so with what a function does that an expression calls, as its own threads may all wait for that.
    """
    if getattr(_HERE, "alone", False):
        return task()
    given, raised = list[T](), list[BaseException]()

    def call(frame: pl.DataFrame) -> pl.DataFrame:
        _HERE.alone = True
        try:
            given.append(task())
        except BaseException as error:  # polars would make another one of it
            raised.append(error)
        finally:
            _HERE.alone = False
        return frame

    _NOTHING.map_batches(call).collect(engine="streaming")
    for error in raised:
        raise error
    return given[0]


_NOTHING: Final = pl.LazyFrame()
_HERE: Final = threading.local()
"""Whether what this thread does is within such a task already."""


@attrs.frozen(eq=False)
class StartedTask(Generic[T]):
    """A task that another thread does as soon as one is free."""

    task: Task[T]
    context: Context = attrs.field(factory=copy_context)
    future: Future[T] = attrs.field(factory=Future)

    def result(self) -> T:
        """What it gives, or raises. If no thread has come to it yet, this one does it now."""
        return in_one_thread(self.task) if self.future.cancel() else self.future.result()

    def go(self) -> None:
        """Does it in this thread, unless `result` has come before."""
        if self.future.set_running_or_notify_cancel():
            try:
                self.future.set_result(self.context.run(in_one_thread, self.task))
            except BaseException as error:
                self.future.set_exception(error)


@attrs.define(eq=False)
class Threads:
    """So many threads, of which one is that of the run itself. A context manager: at its end, none is left.

    By default there are as many as polars has: the cores that this process may use, or `POLARS_MAX_THREADS`. `timer`
    gives seconds, by which it is known how long tasks take.
    """

    count: int = attrs.field(factory=pl.thread_pool_size)
    timer: Callable[[], float] = time.perf_counter
    _others: ThreadPoolExecutor | None = attrs.field(default=None, init=False)
    _later: list[StartedTask[Any]] = attrs.field(factory=list, init=False)
    _took: dict[str, float] = attrs.field(factory=dict, init=False)
    """How many seconds the task of a name took when it was last done."""

    def __enter__(self) -> Self:
        if self.count > 1:
            self._others = ThreadPoolExecutor(self.count - 1, thread_name_prefix="beamlike")
        return self

    def __exit__(self, *error: object) -> None:
        if self._others is not None:
            self._others.shutdown(cancel_futures=True)
            self._others = None

    def start(self, task: Task[T]) -> StartedTask[T] | None:
        """Has another thread do it, after those tasks that `each` is given next; None where there is no other."""
        if self._others is None:
            return None
        started = StartedTask(task)
        self._later.append(started)
        return started

    def each(self, tasks: Mapping[str, Task[T]], here: Container[str] = ()) -> dict[str, T]:
        """What each task gives, in their order; those `here` are done one after another in this thread.

        Those that took longest the last time are begun first, so that all threads are done at about the same time.
        Raises what the first of them raises, in their order, when all are done.
        """
        if self._others is None:
            return {name: in_one_thread(task) for name, task in tasks.items()}
        timed = {name: partial(self._timed, name, tasks[name]) for name in self._longest_first(tasks)}
        own = [name for name in tasks if name in here] or [*timed][:1]
        started = {name: StartedTask(task) for name, task in timed.items() if name not in own}
        for one in (*started.values(), *self._later):
            self._others.submit(one.go)
        self._later.clear()
        try:
            done = {name: _done(timed[name]) for name in own}
            done |= {name: _done(one.task) for name, one in started.items() if one.future.cancel()}
            return {name: (done.get(name) or started[name].future).result() for name in tasks}
        finally:
            wait([one.future for one in started.values() if not one.future.cancel()])

    def _longest_first(self, names: Iterable[str]) -> list[str]:
        """In their order where that is not known, or the same."""
        return sorted(names, key=lambda name: self._took.get(name, 0.0), reverse=True)

    def _timed(self, name: str, task: Task[T]) -> T:
        """Does it, and takes note of how long that takes."""
        began = self.timer()
        try:
            return task()
        finally:
            self._took[name] = self.timer() - began


ALONE: Final = Threads(1)
"""That of the run, and no other."""


def _done(task: Task[T]) -> Future[T]:
    """Does it in this thread. Only Ctrl-C goes through."""
    future: Future[T] = Future()
    try:
        future.set_result(in_one_thread(task))
    except Exception as error:
        future.set_exception(error)
    return future
