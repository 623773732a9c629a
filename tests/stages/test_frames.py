"""Frames that several threads use at the same time."""

from __future__ import annotations

import subprocess
import sys

from tests.support.places import ROOT

PROGRAM = """
import io, threading
import polars as pl
from stages.frames import write_stream

frame = pl.DataFrame({"number": range(2000), "text": [str(number) for number in range(2000)]})

def write():
    for _ in range(100):
        write_stream(frame, io.BytesIO())

def read():
    while writers[0].is_alive():
        frame.columns, frame["number"]

writers = [threading.Thread(target=write, daemon=True) for _ in range(2)]
readers = [threading.Thread(target=read, daemon=True)]
for thread in writers + readers:
    thread.start()
for thread in writers + readers:
    thread.join()
print("done")
"""


def test_a_frame_can_be_read_while_it_is_written() -> None:
    """The test needs a process: `DataFrame.write_ipc_stream` itself would wait forever, with the GIL held."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "done\n"


def test_no_other_function_writes_a_stream() -> None:
    files = [file for part in ("beamlike", "stages", "windowing") for file in (ROOT / part).rglob("*.py")]
    using = [file.name for file in files if ".write_ipc_stream(" in file.read_text()]
    assert using == ["frames.py"]
