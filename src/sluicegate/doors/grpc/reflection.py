"""Reflection: `grpc.reflection`, v1 and v1alpha, from serialized file descriptors.

Tools ask which services there are and what their messages look like. The descriptors are indexed by
name, once, with as much of descriptor.proto as that takes, and are sent as they were given. A file
is sent with all that it imports, itself first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final, final

from sluicegate.contracts.access import Identity
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.grpc.methods import GrpcStatus, StreamMethod
from sluicegate.wire.protobuf import (
    FIELDS_MAX,
    fields_of,
    span_bytes,
    spans_of,
    string_of,
    varint_bytes,
)

V1: Final = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
V1ALPHA: Final = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

# FileDescriptorProto
_NAME, _PACKAGE, _IMPORT, _MESSAGE, _ENUM, _SERVICE, _EXTENSION = 1, 2, 3, 4, 5, 6, 7
# DescriptorProto
_FIELD, _NESTED, _NESTED_ENUM, _NESTED_EXTENSION, _ONEOF = 2, 3, 4, 6, 8
# FieldDescriptorProto; of an enum and a service, 2 are the values and the methods
_EXTENDEE, _NUMBER, _MEMBER = 2, 3, 2
# ServerReflectionRequest
_BY_FILE, _BY_SYMBOL, _BY_EXTENSION, _EXTENSIONS_OF, _LIST = 3, 4, 5, 6, 7


def files_of(descriptor_set: bytes) -> list[bytes]:
    """The files of a FileDescriptorSet."""
    return spans_of(descriptor_set, 1)


@final
class Reflection:
    """Answers about `files`; `also` names services that have no descriptor among them."""

    def __init__(self, files: Iterable[bytes], also: Iterable[str] = ()) -> None:
        self._files: dict[str, bytes] = {}
        self._symbols: dict[str, str] = {}  # full name to file
        self._extensions: dict[str, dict[int, str]] = {}  # extendee to numbers to file
        self._services: set[str] = set(also)
        for file in files:
            name = string_of(file, _NAME)
            if not name:
                raise BadValue("reflection.files", file, "give serialized FileDescriptorProtos")
            if name not in self._files:
                self._files[name] = file
                self._index(name, file)

    @property
    def streams(self) -> Mapping[str, StreamMethod]:
        """The methods for `Methods.streams`."""
        return {V1: self.info, V1ALPHA: self.info}

    async def info(self, messages: AsyncIterator[bytes], _by: Identity) -> AsyncIterator[bytes]:
        """Respond to each request."""
        async for message in messages:
            yield self.answer(message)

    def answer(self, message: bytes) -> bytes:
        """Respond to one request; a wrong one gets an error response."""
        kind = 0
        subject: int | bytes = b""
        for number, value in fields_of(message, FIELDS_MAX):
            if _BY_FILE <= number <= _LIST:
                kind, subject = number, value  # of a oneof the last one counts
        host = string_of(message, 1)
        out = b"\x0a" + span_bytes(host.encode()) if host else b""
        out += b"\x12" + span_bytes(message)
        return out + self._lookup(kind, subject if isinstance(subject, bytes) else b"")

    def _lookup(self, kind: int, value: bytes) -> bytes:
        name = value.decode("utf-8", "replace")
        if kind == _BY_FILE:
            return self._file_response(name if name in self._files else None, f"file {name}")
        if kind == _BY_SYMBOL:
            return self._file_response(self._symbols.get(name), f"symbol {name}")
        if kind == _BY_EXTENSION:
            extendee = string_of(value, 1)
            number = dict(fields_of(value, FIELDS_MAX)).get(2, 0)
            known = self._extensions.get(extendee, {})
            file = known.get(number) if isinstance(number, int) else None
            return self._file_response(file, f"extension {number!r} of {extendee}")
        if kind == _EXTENSIONS_OF:
            return self._extension_numbers(name)
        if kind == _LIST:
            listed = [b"\x0a" + span_bytes(s.encode()) for s in sorted(self._services)]
            return b"\x32" + span_bytes(b"".join([b"\x0a" + span_bytes(one) for one in listed]))
        return _error(GrpcStatus.INVALID_ARGUMENT, "the request asks nothing")

    def _file_response(self, name: str | None, value: str) -> bytes:
        if name is None:
            return _error(GrpcStatus.NOT_FOUND, f"there is no {value}")
        found: dict[str, bytes] = {}
        wanted = [name]
        while wanted:
            at = wanted.pop(0)
            if at in self._files and at not in found:
                found[at] = self._files[at]
                wanted += [each.decode() for each in spans_of(found[at], _IMPORT)]
        return b"\x22" + span_bytes(
            b"".join([b"\x0a" + span_bytes(file) for file in found.values()])
        )

    def _extension_numbers(self, name: str) -> bytes:
        if name not in self._extensions and name not in self._symbols:
            return _error(GrpcStatus.NOT_FOUND, f"there is no message {name}")
        out = b"\x0a" + span_bytes(name.encode())
        numbers = sorted(self._extensions.get(name, {}))
        if numbers:
            out += b"\x12" + span_bytes(b"".join([varint_bytes(each) for each in numbers]))
        return b"\x2a" + span_bytes(out)

    # The index.

    def _index(self, file: str, descriptor: bytes) -> None:
        package = string_of(descriptor, _PACKAGE)
        for each in spans_of(descriptor, _MESSAGE):
            self._message(file, package, each)
        for each in spans_of(descriptor, _ENUM):
            self._enum(file, package, each)
        for each in spans_of(descriptor, _EXTENSION):
            self._extension(file, package, each)
        for each in spans_of(descriptor, _SERVICE):
            name = self._symbol(file, package, each)
            self._services.add(name)
            for method in spans_of(each, _MEMBER):
                self._symbol(file, name, method)

    def _message(self, file: str, scope: str, message: bytes) -> None:
        name = self._symbol(file, scope, message)
        for number in (_FIELD, _ONEOF):
            for each in spans_of(message, number):
                self._symbol(file, name, each)
        for each in spans_of(message, _NESTED):
            self._message(file, name, each)
        for each in spans_of(message, _NESTED_ENUM):
            self._enum(file, name, each)
        for each in spans_of(message, _NESTED_EXTENSION):
            self._extension(file, name, each)

    def _enum(self, file: str, scope: str, enum: bytes) -> None:
        self._symbol(file, scope, enum)
        for value in spans_of(enum, _MEMBER):
            self._symbol(file, scope, value)  # a value lives beside its enum, as in C

    def _extension(self, file: str, scope: str, extension: bytes) -> None:
        self._symbol(file, scope, extension)
        number = dict(fields_of(extension)).get(_NUMBER, 0)
        if isinstance(number, int):
            extendee = string_of(extension, _EXTENDEE).lstrip(".")
            self._extensions.setdefault(extendee, {})[number] = file

    def _symbol(self, file: str, scope: str, described: bytes) -> str:
        name = string_of(described, _NAME)
        full = f"{scope}.{name}" if scope else name
        self._symbols.setdefault(full, file)
        return full


def _error(status: GrpcStatus, message: str) -> bytes:
    out = b"\x08" + varint_bytes(int(status)) + b"\x12" + span_bytes(message.encode())
    return b"\x3a" + span_bytes(out)
