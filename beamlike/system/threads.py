"""Runs several tasks at the same time, each in one thread. Within a task, polars uses no other threads.

For operations of about a millisecond, further threads inside polars cost more than they gain.
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
    """Runs a task so that polars performs all operations in the calling thread. Returns its result, or raises its
    error.

    Polars does so inside a function that an expression calls, because its other threads may all be waiting for that
    function.
    """
    if getattr(_HERE, "alone", False):
        return task()
    given, raised = list[T](), list[BaseException]()

    def call(frame: pl.DataFrame) -> pl.DataFrame:
        _HERE.alone = True
        try:
            given.append(task())
        except BaseException as error:  # polars would raise another error instead
            raised.append(error)
        finally:
            _HERE.alone = False
        return frame

    _NOTHING.map_batches(call).collect(engine="streaming", optimizations=pl.QueryOptFlags.none())
    for error in raised:
        raise error
    return given[0]


_NOTHING: Final = pl.LazyFrame()
_HERE: Final = threading.local()
"""The state of this thread; its attribute `alone` is True while it runs such a task."""


@attrs.frozen(eq=False)
class StartedTask(Generic[T]):
    """A task that another thread runs as soon as one is free."""

    task: Task[T]
    context: Context = attrs.field(factory=copy_context)
    future: Future[T] = attrs.field(factory=Future)

    def result(self) -> T:
        """Returns the result of the task, or raises its error. If no thread has started the task yet, the caller runs
        it.
        """
        return in_one_thread(self.task) if self.future.cancel() else self.future.result()

    def go(self) -> None:
        """Runs the task in this thread, unless `result` already did."""
        if self.future.set_running_or_notify_cancel():
            try:
                self.future.set_result(self.context.run(in_one_thread, self.task))
            except BaseException as error:
                self.future.set_exception(error)


@attrs.define(eq=False)
class Threads:
    """A number of threads, including the run's own. Use it as a context manager, which ends the others.

    The default number is that of polars: the cores that this process may use, or `POLARS_MAX_THREADS`. `timer` returns
    seconds, to measure tasks.
    """

    count: int = attrs.field(factory=pl.thread_pool_size)
    timer: Callable[[], float] = time.perf_counter
    _others: ThreadPoolExecutor | None = attrs.field(default=None, init=False)
    _later: list[StartedTask[Any]] = attrs.field(factory=list, init=False)
    _took: dict[str, float] = attrs.field(factory=dict, init=False)
    """The seconds that the last task of each name took."""

    def __enter__(self) -> Self:
        if self.count > 1:
            self._others = ThreadPoolExecutor(self.count - 1, thread_name_prefix="beamlike")
        return self

    def __exit__(self, *error: object) -> None:
        if self._others is not None:
            self._others.shutdown(cancel_futures=True)
            self._others = None

    def start(self, task: Task[T]) -> StartedTask[T] | None:
        """Starts a task in another thread, after the tasks of the next `each`. Returns None if there is no
        other thread.
        """
        if self._others is None:
            return None
        started = StartedTask(task)
        self._later.append(started)
        return started

    def each(self, tasks: Mapping[str, Task[T]], here: Container[str] = ()) -> dict[str, T]:
        """Runs tasks, and returns their results in order. Tasks in `here` run one after another in the calling thread.

        Tasks that took longest last time start first, so that all threads end at about the same time. When all tasks
        have ended, the error of the first task that failed, in the given order, is raised.
        """
        if self._others is None:
            return in_one_thread(lambda: {name: task() for name, task in tasks.items()})
        timed = {name: partial(self._timed, name, tasks[name]) for name in self._longest_first(tasks)}
        own = [name for name in tasks if name in here] or [*timed][:1]
        started = {name: StartedTask(task) for name, task in timed.items() if name not in own}
        # Tasks of `start` come last, because only the next batch needs their results.
        for one in (*started.values(), *self._later):
            self._others.submit(one.go)
        self._later.clear()
        try:
            done = {name: _done(timed[name]) for name in own}
            # A task can be cancelled only if no other thread has started it. It then runs here.
            done |= {name: _done(one.task) for name, one in started.items() if one.future.cancel()}
            return {name: (done.get(name) or started[name].future).result() for name in tasks}
        finally:
            wait([one.future for one in started.values() if not one.future.cancel()])

    def _longest_first(self, names: Iterable[str]) -> list[str]:
        """Returns the names sorted by the time that their tasks took, longest first. Unknown or equal times keep their
        order.
        """
        return sorted(names, key=lambda name: self._took.get(name, 0.0), reverse=True)

    def _timed(self, name: str, task: Task[T]) -> T:
        """Runs a task, and measures its time."""
        began = self.timer()
        try:
            return task()
        finally:
            self._took[name] = self.timer() - began


ALONE: Final = Threads(1)
"""Only the thread of the run."""


def _done(task: Task[T]) -> Future[T]:
    """Runs a task in this thread, and catches its error, except Ctrl-C."""
    future: Future[T] = Future()
    try:
        future.set_result(in_one_thread(task))
    except Exception as error:
        future.set_exception(error)
    return future


def start_daemon(task: Task[T]) -> Future[T]:
    """Runs a task in a new thread, which does not keep the process from ending."""
    future: Future[T] = Future()

    def go() -> None:
        try:
            future.set_result(task())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=go, daemon=True).start()
    return future
