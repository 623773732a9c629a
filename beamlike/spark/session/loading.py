"""Loads the objects of a run in workers whose environment its session cannot set, as with Spark Connect.

Spark's own way to send code to such workers, artifacts, does not reach the functions of a streaming query that has a
`foreachBatch` (seen with 4.3.0). So the archive of the code is in the checkpoint, which workers read anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from pyspark.serializers import CPickleSerializer

_CODE: Final[ContextVar[str | None]] = ContextVar("code", default=None)


@contextmanager
def code_in(archive: str) -> Iterator[None]:
    """Lets workers import the code in an archive for objects that are packed in the `with` block."""
    token = _CODE.set(archive)
    try:
        yield
    finally:
        _CODE.reset(token)


def packed(loaded: Any) -> Callable[[], Any]:
    """Returns a function that returns a copy of an object in a worker, where its modules need not be imported yet.

    A function that is defined in another one is pickled with its code. So it runs before polars is imported, which is
    to have one thread, and before modules are imported from another place.
    """
    pickled, archive = CPickleSerializer().dumps(loaded), _CODE.get()

    def import_from(archive: str) -> None:
        """Adds an archive to the path. Modules of the same names, perhaps of an earlier run, are forgotten."""
        import importlib
        import sys
        import zipfile

        place, far = archive, "://" in archive
        if getattr(sys, "beamlike_code", None) == archive:
            return
        if far:
            import os
            import tempfile

            from pyarrow import fs

            scheme, _, rest = archive.partition("://")
            system, path = fs.FileSystem.from_uri(f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest}")
            place = os.path.join(tempfile.mkdtemp(prefix="beamlike-code-"), "code.zip")
            with system.open_input_stream(path) as there, open(place, "wb") as here:
                here.write(there.read())
        with zipfile.ZipFile(place) as file:
            tops = {name.partition("/")[0].partition(".")[0] for name in file.namelist()}
        for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
            del sys.modules[name]
        sys.path[:] = [place, *(entry for entry in sys.path if entry != getattr(sys, "beamlike_place", None))]
        importlib.invalidate_caches()
        sys.beamlike_code, sys.beamlike_place = archive, place  # type: ignore[attr-defined]

    def load() -> Any:
        import os
        import pickle

        os.environ.setdefault("POLARS_MAX_THREADS", "1")
        if archive is not None:
            import_from(archive)
        return pickle.loads(pickled)

    return load
