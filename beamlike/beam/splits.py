"""Splits bundles that take long, so that what they have emitted so far is not kept waiting.

thread of the bundle     process element 1 ... process element 2 ................ end
thread that splits                                               split at once    join
deferred                                       rest of element 2, element 3 and all others
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from apache_beam.portability.api import beam_fn_api_pb2 as fn_protos
from apache_beam.runners.portability.fn_api_runner.worker_handlers import EmbeddedWorkerHandler

LONGEST: Final = 1.0
"""The time (s) after which the runner splits a bundle of a splittable DoFn."""


@contextmanager
def split_if_long(handler: Any, reads: Iterable[str]) -> Iterator[list[Any]]:
    """Splits the bundle that a worker processes within the `with` block, if it takes longer than `LONGEST`.

    Yields the list of the worker's responses, which is complete when the block ends. `reads` are the names of the
    transforms that read the bundle. Does nothing for a worker in another process.
    """
    found, over = list[Any](), threading.Event()

    def watch() -> None:
        while not over.wait(LONGEST):
            found.extend(_split(handler, reads))

    if not isinstance(handler, EmbeddedWorkerHandler):
        yield found
        return
    thread = threading.Thread(target=watch, name="split", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def _split(handler: Any, reads: Iterable[str]) -> Iterator[Any]:
    """Asks the worker to end its bundle at once, and yields its responses that defer something."""
    wanted = fn_protos.ProcessBundleSplitRequest.DesiredSplit(fraction_of_remainder=0)
    for bundle in list(handler.bundle_processor_cache.active_bundle_processors):
        asked = fn_protos.ProcessBundleSplitRequest(
            instruction_id=bundle, desired_splits=dict.fromkeys(reads, wanted)
        )
        answer = handler.push(fn_protos.InstructionRequest(process_bundle_split=asked)).get()
        if answer.process_bundle_split.channel_splits:
            yield answer.process_bundle_split
