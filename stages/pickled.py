"""Pickled Python objects of users in state."""

from __future__ import annotations

import io
import pickle
from contextlib import suppress
from typing import Any

from stages.errors import UnreadableState


class _Tracing(pickle.Unpickler):
    """An unpickler that records the last class that it has loaded."""

    last = ""

    def find_class(self, module: str, name: str) -> Any:
        self.last = f"{module}.{name}"
        return super().find_class(module, name)


def load(data: bytes, what: str) -> Any:
    """Loads a pickled object of the state of `what`. Raises `UnreadableState`, which names the class and the reason."""
    try:
        return pickle.loads(data)
    except MemoryError:
        raise
    except Exception as error:  # the user's class may raise anything
        why = (str(error) or type(error).__name__).partition("\n")[0]
        raise UnreadableState(
            f"the state of {what} cannot be read: it has an object of {_class_in(data)}, and {type(error).__name__} "
            f"says: {why}. The run stops, so that nothing of it is lost. If the class has moved or has another name, "
            "let the old module have it by its old name, too: see 'A class that moves' in docs/operations.md"
        ) from error


def _class_in(data: bytes) -> str:
    """Returns the last class that unpickling loads before it fails, as text."""
    reader = _Tracing(io.BytesIO(data))
    with suppress(Exception):
        reader.load()
    return f"class {reader.last}" if reader.last else "a class that is not known"
