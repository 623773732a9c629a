"""Memory that polars frees is kept for the next batch, except if polars was imported first or a user setting exists."""

from __future__ import annotations

import os
import subprocess
import sys

VARIABLE = "_RJEM_MALLOC_CONF"
KEPT = "dirty_decay_ms:10000"


def told(imports: str, **said: str) -> str:
    """Returns the allocator setting of another process, which begins with the defaults of polars."""
    others = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-c", f"{imports}; import os; print(os.environ['{VARIABLE}'])"]
    done = subprocess.run(command, env=others | said, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_what_is_freed_is_kept_for_the_next_batch() -> None:
    assert told("import beamlike").endswith(f",{KEPT}")


def test_a_user_who_says_otherwise_is_right() -> None:
    said = told("import beamlike", **{VARIABLE: "dirty_decay_ms:7"})
    assert said.endswith(",dirty_decay_ms:7")
    assert KEPT not in said


def test_polars_that_was_there_before_stays_as_it_is() -> None:
    assert KEPT not in told("import polars, beamlike")
