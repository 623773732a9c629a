"""Builds the zip file of Python code that executors import: this project's packages, and the modules of the
pipeline.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import marshal
import os
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES, SourceFileLoader
from pathlib import Path
from types import ModuleType

from beamlike.spark.session.scratch import scratch

Code = Path | zipfile.Path
"""A source file or a folder. Both may be in a zip file, as with `--py-files`."""

OWN_PACKAGES = ("beamlike", "stages", "windowing")
# The earliest date of a zip entry; the same for all, so that equal content gives equal bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_COMPILED = frozenset(Path(f"module{suffix}").suffix for suffix in EXTENSION_SUFFIXES)
_UNCHECKED_HASH = b"\1\0\0\0"  # PEP 552: compiled code that is valid whatever the date of its source


def build_archive(modules: Iterable[ModuleType | str], *, compressed: bool = True) -> Path:
    """Builds a zip file with windowing, stages, beamlike and the code of `modules`, which may be names.

    The code of a module is its top-level package or file, and the same for all modules that it imports. Only the user's
    own code is included: not the standard library, installed packages, Spark's own Python, or `__main__`, whose
    functions are pickled by value. A package with compiled modules is left out, too, because Python cannot import them
    from a zip file, and the rest of the package would hide the complete one. Equal content gives equal bytes and,
    within a process, the same path.

    An archive that is not `compressed` takes a third of the time, and twice the space. It is for workers on this
    machine, which read it in place.
    """
    sources = dict(sorted(_sources(modules).items()))
    digest = hashlib.sha256(str(sys.implementation.cache_tag).encode())
    for name, path in sources.items():
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    archive = scratch() / f"beamlike-{digest.hexdigest()[:16]}{'' if compressed else '-stored'}.zip"
    if not archive.exists():
        draft = archive.with_suffix(".draft")
        _write(draft, sources, zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED)
        os.replace(draft, archive)
    return archive


def _sources(modules: Iterable[ModuleType | str]) -> dict[str, Code]:
    """Returns source files by their names in the archive. They are found by following imports from `modules`."""
    sources = {key: path for name in OWN_PACKAGES for key, path in _files(name, _places(name))}
    seen = {*OWN_PACKAGES}
    ahead = [name for module in modules for name in _first_names(module)]
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            found = dict(_files(name, [place for place in _places(name) if not _stays(place)]))
            sources.update(found)
            ahead += [used for path in found.values() for used in _imported(path)]
    return sources


def _first_names(module: ModuleType | str) -> set[str]:
    """Returns the top-level names to start from: the module's own name, or the names that `__main__` imports."""
    name = module if isinstance(module, str) else module.__name__
    if name != "__main__":
        return {name.partition(".")[0]}
    main = sys.modules["__main__"]
    if file := getattr(main, "__file__", None):
        return _imported(Path(file))
    # A notebook or an interactive session has no file, so the modules that it uses are taken.
    used = [
        value if isinstance(value, ModuleType) else inspect.getmodule(value) for value in vars(main).values()
    ]
    return {module.__name__.partition(".")[0] for module in used if module is not None} - {"__main__"}


def _places(name: str) -> list[Code]:
    """Returns the file of the top-level module `name`, or the folders of the package. Returns none for a compiled
    module.
    """
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a module without a spec, for example one that was created by code
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations is None:
        return [_at(spec.origin)] if spec.origin and spec.origin.endswith(".py") else []
    return [_at(folder) for folder in spec.submodule_search_locations]


def _at(place: str) -> Code:
    """Returns the file or folder at a path, which may lead into a zip file."""
    path = Path(place)
    if not path.exists() and (archive := next(filter(Path.is_file, path.parents), None)) is not None:
        inner = path.relative_to(archive).as_posix()
        return zipfile.Path(archive, inner if inner.endswith(".py") else f"{inner}/")
    return path


def _files(name: str, places: Iterable[Code]) -> Iterator[tuple[str, Code]]:
    """Yields names in the archive and source files, for the module or package `name` at `places`."""
    for place in places:
        if place.is_dir():
            yield from ((f"{name}/{below}", path) for below, path in _below(place))
        else:
            yield place.name, place


def _below(folder: Code) -> Iterator[tuple[str, Code]]:
    """Yields the source files below a folder, by their relative names."""
    if isinstance(folder, Path):
        yield from ((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*.py"))
        return
    for name in folder.root.namelist():
        if name.startswith(folder.at) and name.endswith(".py"):
            yield name.removeprefix(folder.at), zipfile.Path(folder.root, name)


def _stays(code: Code) -> bool:
    """True for code that workers have themselves, or cannot import from an archive."""
    path = Path(str(code))
    return (
        bool({"site-packages", "dist-packages"}.intersection(path.parts))
        or any(path.is_relative_to(folder) for folder in _of_python_and_spark())
        or (path.is_dir() and any(_is_compiled_module(file, path) for file in path.rglob("*")))
    )


def _is_compiled_module(file: Path, package: Path) -> bool:
    """True for a compiled module of the package itself, and not of a virtual environment in its folder."""
    inside = file.suffix in _COMPILED and "site-packages" not in file.relative_to(package).parts
    return inside and (file.parent / "__init__.py").exists()


def _of_python_and_spark() -> Iterator[Path]:
    """Yields the folders and files of the standard library and of Spark's Python, which workers have on their path."""
    yield from (Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib"))
    for name in ("pyspark", "py4j"):
        yield from (Path(str(place)) for place in _places(name))
    if home := os.environ.get("SPARK_HOME"):
        yield Path(home) / "python"


def _imported(path: Code) -> set[str]:
    """Returns the top-level names that a source file imports, in any place."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError):
        return set()
    return {name.partition(".")[0] for name in _import_names(tree)}


def _import_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


def _write(archive: Path, sources: dict[str, Code], method: int) -> None:
    """Writes sources, for tracebacks, and compiled code, because Python does not cache that for a zip file."""
    with zipfile.ZipFile(archive, "w", method) as file:
        for name, path in sources.items():
            file.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes(), method)
            if compiled := _compiled(name, path):
                file.writestr(zipfile.ZipInfo(f"{name}c", _EPOCH), compiled, method)


def _compiled(name: str, path: Code) -> bytes | None:
    source = path.read_bytes()
    try:
        if isinstance(path, Path):
            code = SourceFileLoader(name, str(path)).get_code(name)  # Python may have compiled it already
        else:
            code = compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError:  # a file of the user's package that is not imported
        return None
    return (
        importlib.util.MAGIC_NUMBER
        + _UNCHECKED_HASH
        + importlib.util.source_hash(source)
        + marshal.dumps(code)
    )
