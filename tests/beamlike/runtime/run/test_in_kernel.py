"""A run in a notebook kernel updates the output of its cell; in a terminal, IPython shows nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.notebooks import outputs
from tests.support.places import ROOT

PIPELINE = """
import beamlike as bl
p = bl.Pipeline("p")
rows = p.read("rows", bl.Rows([{"x": 1}, {"x": 2}], rows_per_batch=1))
rows.write("out", bl.Memory());
"""
QUIET = "p.run(bl.LocalRunner(quiet=True));"
STARTED = """
import threading
later = threading.Event()
live = bl.LocalRunner(checkpoint="checkpoint", on_batch=lambda _: later.wait()).start(p)
"""
# nbclient, unlike other front ends, receives the updates only while some cell is executed.
ENDED = "later.set(); live.wait()"


def test_a_cell_has_the_last_state_of_its_run(tmp_path: Path) -> None:
    _, run, quiet, started, ended = outputs(PIPELINE, "p.run();", QUIET, STARTED, ENDED, folder=tmp_path)
    (shown,) = run
    assert shown["text/plain"].startswith("p: batch 2, 2 elements")
    assert "<td>out</td><td>2</td>" in shown["text/html"]
    assert quiet == ended == []
    (of_thread,) = started  # its thread updates the output after the cell has ended
    assert of_thread["text/html"].startswith("<details><summary>p: batch 1, 2 elements")


def test_ipython_in_a_terminal_shows_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "IPython", "--quick", "-c", f"{PIPELINE}\nrun = p.run()"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


MISTAKES = (
    "bl.Pipeline('q').run()",
    "bl.Kafka(brokers='x')",
    "rows.select('z')",
    "rows.filter(bl.col('x') and True)",
)
CAUGHT = """
import contextlib, io
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(colors="nocolor", user_ns=globals())

def shown(code):
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        shell.run_cell(code)
    return text.getvalue()
"""


def test_a_notebook_shows_the_sentence_of_an_error_before_its_frames(tmp_path: Path) -> None:
    script = tmp_path / "mistakes.py"
    lines = [f"print(repr(shown({code!r})))" for code in MISTAKES]
    script.write_text("\n".join([PIPELINE, CAUGHT, *lines]))
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cells = [eval(line) for line in done.stdout.splitlines() if line.startswith(("'", '"'))]
    assert len(cells) == len(MISTAKES)
    for cell in cells:
        first = next(line for line in cell.splitlines() if line.strip())
        assert first.startswith(("PlanError: ", "WrongType: ", "UnknownColumn: ")), cell
        assert "Traceback" in cell.partition("\n")[2], cell


FAILING = """
class Refuses:
    def write(self, frame, part):
        raise OSError("the disk is full")

def failing(*places):
    p = bl.Pipeline("p", on_error="fail")
    p.read("rows", bl.Rows([{"x": 1}, {"x": 0}], rows_per_batch=1)).map(
        lambda row: {"x": 1 // row["x"]}, {"x": int}).write("out", bl.Memory())
    return p

def caught(run):
    try:
        run()
    except Exception as error:
        caught.error = error;
"""
FULL = """
p = bl.Pipeline("full")
p.read("rows", bl.Rows([{"x": 1}])).write("out", Refuses());
"""


def test_a_cell_says_that_its_run_has_failed_and_why(tmp_path: Path) -> None:
    _, _, alone, kept, thread, _, sink = outputs(
        PIPELINE, FAILING,
        "caught(lambda: failing().run());",
        "caught(lambda: failing().run(bl.LocalRunner(checkpoint='kept')));",
        "caught(lambda: bl.LocalRunner(checkpoint='thread').start(failing()).wait());",
        FULL, "caught(lambda: p.run());",
        folder=tmp_path,
    )  # fmt: skip
    for (shown,) in (alone, kept, thread):
        text = shown["text/plain"]
        assert text.startswith("p: batch 0, 1 elements")
        assert "; failed: ZeroDivisionError: integer division or modulo by zero" in text
        assert text.endswith("""in the function of step 'rows.map' (map), for the row {"x":0}""")
    assert sink[0]["text/plain"].startswith("full: starting; failed: SinkError: sink 'out': ")
    assert sink[0]["text/plain"].endswith("OSError: the disk is full")
