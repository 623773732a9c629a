"""Makes Java pickle the bytes of state values as bytes for Python.

By default, the library that Spark uses for pickling writes bytes as text, a character for each. That takes fifteen
times as long as everything else that Java does for a value. The library accepts another pickler for a class. It is
composed here of existing methods of Java, because this package has no Java code.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError

_PYTHON: Final = "org.apache.spark.sql.execution.python.EvaluatePython"
_BINBYTES: Final = ord("B")
"""The pickle opcode for bytes. Their length follows in four bytes, and then the bytes."""


def pickle_bytes_as_bytes(gateway: JavaGateway) -> None:
    """Makes this Java write bytes as Python does. In a Spark with other internals, nothing changes."""
    with suppress(Py4JError, TypeError):  # py4j raises a TypeError if a name is no class
        _register(gateway)


def _register(gateway: JavaGateway) -> None:
    java = gateway.jvm
    wrapper = java.java.lang.Class.forName(f"{_PYTHON}$BytesWrapper")
    pickler = java.net.razorvine.pickle.Pickler
    # Spark registers its picklers once. If it did so later, it would replace this one.
    java.org.apache.spark.sql.execution.python.EvaluatePython.registerPicklers()
    pickler.registerCustomPickler(wrapper, _Handles(gateway).pickler(wrapper))


class _Handles:
    """Java's method handles, used from Python."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._gateway, self._jvm = gateway, gateway.jvm
        self._handles = gateway.jvm.java.lang.invoke.MethodHandles
        self._bytes = self._class("[B")
        self._stream = self._class("java.io.OutputStream")

    def pickler(self, wrapper: Any) -> Any:
        """Returns a function (wrapper, out, pickler) that calls out.write('B'), out.write(length) and
        out.write(data).
        """
        handles, stream, of_bytes = self._handles, self._stream, self._bytes
        utilities = self._class("net.razorvine.pickle.PickleUtils")
        number = self._primitive("Integer")
        nothing = self._primitive("Void")
        find = handles.publicLookup()
        data = find.findVirtual(wrapper, "data", self._type(of_bytes)).asType(
            self._type(of_bytes, self._class("java.lang.Object"))
        )
        as_bytes = find.findStatic(utilities, "integer_to_bytes", self._type(of_bytes, number))
        length = handles.filterReturnValue(handles.arrayLength(of_bytes), as_bytes)
        write_number = find.findVirtual(stream, "write", self._type(nothing, number))
        write = find.findVirtual(stream, "write", self._type(nothing, of_bytes))
        opcode = handles.insertArguments(write_number, 1, self._array("Object", _BINBYTES))
        write_length = handles.filterArguments(write, 1, self._array("invoke.MethodHandle", length))
        both = handles.foldArguments(handles.foldArguments(write, write_length), opcode)
        turn = self._gateway.new_array(self._jvm.int, 2)
        turn[0], turn[1] = 1, 0
        turned = handles.permuteArguments(both, self._type(nothing, of_bytes, stream), turn)
        whole = handles.filterArguments(turned, 0, self._array("invoke.MethodHandle", data))
        unused = self._array("Class", self._class("net.razorvine.pickle.Pickler"))
        called = handles.dropArguments(whole, 2, unused)
        interface = self._class("net.razorvine.pickle.IObjectPickler")
        return self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(interface, called)

    def _class(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(name)

    def _primitive(self, boxed: str) -> Any:
        return self._jvm.java.lang.Class.forName(f"java.lang.{boxed}").getField("TYPE").get(None)

    def _type(self, result: Any, *arguments: Any) -> Any:
        return self._jvm.java.lang.invoke.MethodType.methodType(result, self._array("Class", *arguments))

    def _array(self, kind: str, *items: Any) -> Any:
        """Returns an array of a class in java.lang."""
        of = self._jvm.java.lang
        for name in kind.split("."):
            of = getattr(of, name)
        array = self._gateway.new_array(of, len(items))
        for number, item in enumerate(items):
            array[number] = item
        return array
