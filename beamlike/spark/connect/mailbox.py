"""A folder in which a server of Spark Connect and the process of a run exchange batches.

The server calls the `foreachBatch` function in a process of its own, which this process cannot call and which has no
code of ours. So that function does not write the batch: it passes the rows to the process of the run, and waits until
that has done what the driver does on a classic session.

    server                                  process of the run
    N.begun        ───────────────────▶     syncs the offsets of batch N
                   ◀───────────────────     N.go
    N.rows         ───────────────────▶     writes sinks and records, publishes files
                   ◀───────────────────     N.done, with the error if the batch failed
    commits batch N
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

GO: Final = "go"
ROWS: Final = "rows"
DONE: Final = "done"
ALIVE: Final = "alive"
"""The file that the process of the run changes as long as it lives."""


class Mailbox(Protocol):
    """The folder, as both processes use it."""

    def put(self, name: str, content: bytes) -> None:
        """Writes a file, of which the other process sees nothing until it is complete."""

    def get(self, name: str) -> bytes | None:
        """Returns the content of a file; None if it does not exist."""

    def begun(self) -> list[int]:
        """Returns the batches that the server has begun, in order."""

    def remove(self, batch: int) -> None:
        """Removes the files of a batch."""

    def wait(self, find: Callable[[], Any], look: Callable[[], object]) -> Any:
        """Repeats `find` until it returns something. Meanwhile calls `look` every second, which may raise."""

    def turn(self, envelopes: Any, batch: int) -> None:
        """Passes a batch to the process of the run, and waits until it is written: the `foreachBatch` function."""


def mailbox(folder: str, patience: float) -> Mailbox:
    """Returns the mailbox in a folder. The server gives up a batch if the process of the run shows no sign of life for
    `patience` seconds.
    """

    # A class that is defined in a function is pickled with its code, of which everything is in here.
    class Files:
        def __init__(self) -> None:
            self.folder = folder
            self.patience = patience
            # Each look at another machine's storage is a request.
            self.pauses = (0.2, 1.0) if "://" in folder else (0.002, 0.05)

        def place(self) -> tuple[Any, str]:
            from pyarrow import fs

            if "://" not in self.folder:
                return fs.LocalFileSystem(), self.folder
            scheme, _, rest = self.folder.partition("://")
            found: tuple[Any, str] = fs.FileSystem.from_uri(
                f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest}"
            )
            return found

        def put(self, name: str, content: bytes) -> None:
            system, base = self.place()
            with system.open_output_stream(f"{base}/_{name}") as file:
                file.write(content)
            system.move(f"{base}/_{name}", f"{base}/{name}")

        def get(self, name: str) -> bytes | None:
            system, base = self.place()
            try:
                with system.open_input_stream(f"{base}/{name}") as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

        def begun(self) -> list[int]:
            from pyarrow import fs

            system, base = self.place()
            names = [found.base_name for found in system.get_file_info(fs.FileSelector(base))]
            parts = [name.partition(".") for name in names]
            return sorted(int(number) for number, _, what in parts if what == "begun" and number.isdigit())

        def remove(self, batch: int) -> None:
            system, base = self.place()
            for what in ("begun", "go", "rows", "done"):
                with suppress(FileNotFoundError):
                    system.delete_file(f"{base}/{batch}.{what}")

        def wait(self, find: Callable[[], Any], look: Callable[[], object]) -> Any:
            import time

            pause, longest = self.pauses
            looked = time.monotonic()
            while (found := find()) is None:
                time.sleep(pause)
                pause = min(longest, 1.5 * pause)
                if time.monotonic() - looked >= 1:
                    look()
                    looked = time.monotonic()
            return found

        def answer(self, name: str, seen: list[Any]) -> None:
            """Waits for an answer of the process of the run. Raises its error."""
            import time

            def look() -> None:
                sign, now = self.get("alive"), time.monotonic()
                if sign is None:
                    raise RuntimeError("the run was given up, or another one continues from its checkpoint")
                if sign != seen[0]:
                    seen[:] = sign, now
                elif now - seen[1] > self.patience:
                    raise RuntimeError(
                        f"the process of the run has shown no sign of life for {self.patience} s"
                    )

            if error := self.wait(lambda: self.get(name), look):
                raise RuntimeError(error.decode())

        def turn(self, envelopes: Any, batch: int) -> None:
            import time

            import pyarrow

            seen = [None, time.monotonic()]
            self.put(f"{batch}.begun", b"")
            self.answer(f"{batch}.go", seen)
            # The server runs the tasks in a thread that does not know the batch. They read it from this tag.
            session, tag = (
                envelopes.sparkSession,
                f"beamlike-batch-{batch}-of-{self.folder.rpartition('/')[2]}",
            )
            session.addTag(tag)
            rows = envelopes.toArrow()
            session.removeTag(tag)
            buffer = pyarrow.BufferOutputStream()
            with pyarrow.ipc.new_file(buffer, rows.schema) as file:
                file.write_table(rows)
            self.put(f"{batch}.rows", buffer.getvalue())
            seen = [None, time.monotonic()]
            self.answer(f"{batch}.done", seen)

    return Files()
