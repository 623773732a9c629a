"""Concurrent calls of a coroutine function, each with a timeout and retries.

This module is imported at the first call of a service, because importing asyncio takes long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tenacity import AsyncRetrying, stop_after_attempt, wait_random_exponential

from windowing.time import format_duration

Function = Callable[[Any], Awaitable[Any]]


def answers(fn: Function, given: Sequence[Any], at_once: int, timeout: int, retries: int) -> list[Any]:
    """Calls the function for each item of `given`. Returns, in order, a result or the last error for each.

    `timeout` is in microseconds.
    """
    # In a thread of its own, because this thread may already run an event loop, as in a notebook.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _all(fn, given, at_once, timeout, retries)).result()


async def _all(fn: Function, given: Sequence[Any], at_once: int, timeout: int, retries: int) -> list[Any]:
    places = asyncio.Semaphore(at_once)
    tries = AsyncRetrying(
        stop=stop_after_attempt(1 + retries),
        wait=wait_random_exponential(multiplier=0.1, max=10),
        reraise=True,
    )

    async def one(argument: Any) -> Any:
        async with places:
            return await tries.copy()(_in_time, fn, argument, timeout)

    return await asyncio.gather(*map(one, given), return_exceptions=True)


async def _in_time(fn: Function, argument: Any, timeout: int) -> Any:
    try:
        async with asyncio.timeout(timeout / 1_000_000) as waiting:
            return await fn(argument)
    except TimeoutError as error:
        if not waiting.expired():
            raise
        raise TimeoutError(f"no answer within {format_duration(timeout)}") from error
