"""The messages that Envoy's rate-limit service speaks, as tables: names, numbers and types.

Only for server reflection: `generate.py` makes descriptors of them, under the names that they have
on the wire, so that tools which ask a server for its services can call this one. What we neither
read nor write is left out, and a reader skips it as it skips any unknown field.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Field(NamedTuple):
    """A field: `type` is a scalar's word, or the full name of a message or enum behind a dot."""

    number: int
    name: str
    type: str
    repeated: bool = False
    oneof: str = ""


class Message(NamedTuple):
    """A message by its name inside its package; `map_entry` is what a map is made of."""

    name: str
    fields: tuple[Field, ...]
    map_entry: bool = False


class Choice(NamedTuple):
    """An enum by its name inside its package, and its values."""

    name: str
    values: tuple[tuple[str, int], ...]


class File(NamedTuple):
    """A file by its path, and those whose types it uses; each after what it imports."""

    path: str
    imports: tuple[str, ...] = ()
    messages: tuple[Message, ...] = ()
    choices: tuple[Choice, ...] = ()


_DURATION: Final = "google/protobuf/duration.proto"
_STRUCT: Final = "google/protobuf/struct.proto"
_WRAPPERS: Final = "google/protobuf/wrappers.proto"
_BASE: Final = "envoy/config/core/v3/base.proto"
_UNIT: Final = "envoy/type/v3/ratelimit_unit.proto"
_DESCRIPTOR: Final = "envoy/extensions/common/ratelimit/v3/ratelimit.proto"
SERVICE_FILE: Final = "envoy/service/ratelimit/v3/rls.proto"

SERVICE: Final = "RateLimitService"
METHOD: Final = ("ShouldRateLimit", "RateLimitRequest", "RateLimitResponse")

_G: Final = ".google.protobuf."
_D: Final = ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor"
_R: Final = ".envoy.service.ratelimit.v3.RateLimitResponse"
_HEADER: Final = ".envoy.config.core.v3.HeaderValue"

_UNITS: Final = (
    ("UNKNOWN", 0),
    ("SECOND", 1),
    ("MINUTE", 2),
    ("HOUR", 3),
    ("DAY", 4),
    ("MONTH", 5),
    ("YEAR", 6),
)

FILES: Final = (
    File(
        _DURATION,
        messages=(Message("Duration", (Field(1, "seconds", "int64"), Field(2, "nanos", "int32"))),),
    ),
    File(
        _STRUCT,
        messages=(
            Message("Struct", (Field(1, "fields", _G + "Struct.FieldsEntry", repeated=True),)),
            Message(
                "Struct.FieldsEntry",
                (Field(1, "key", "string"), Field(2, "value", _G + "Value")),
                map_entry=True,
            ),
            Message(
                "Value",
                (
                    Field(1, "null_value", _G + "NullValue", oneof="kind"),
                    Field(2, "number_value", "double", oneof="kind"),
                    Field(3, "string_value", "string", oneof="kind"),
                    Field(4, "bool_value", "bool", oneof="kind"),
                    Field(5, "struct_value", _G + "Struct", oneof="kind"),
                    Field(6, "list_value", _G + "ListValue", oneof="kind"),
                ),
            ),
            Message("ListValue", (Field(1, "values", _G + "Value", repeated=True),)),
        ),
        choices=(Choice("NullValue", (("NULL_VALUE", 0),)),),
    ),
    File(_WRAPPERS, messages=(Message("UInt64Value", (Field(1, "value", "uint64"),)),)),
    File(
        _BASE,
        messages=(
            Message("HeaderValue", (Field(1, "key", "string"), Field(2, "value", "string"))),
        ),
    ),
    File(_UNIT, choices=(Choice("RateLimitUnit", _UNITS),)),
    File(
        _DESCRIPTOR,
        imports=(_UNIT, _WRAPPERS),
        messages=(
            Message(
                "RateLimitDescriptor",
                (
                    Field(1, "entries", _D + ".Entry", repeated=True),
                    Field(2, "limit", _D + ".RateLimitOverride"),
                    Field(3, "hits_addend", _G + "UInt64Value"),
                ),
            ),
            Message(
                "RateLimitDescriptor.Entry",
                (Field(1, "key", "string"), Field(2, "value", "string")),
            ),
            Message(
                "RateLimitDescriptor.RateLimitOverride",
                (
                    Field(1, "requests_per_unit", "uint32"),
                    Field(2, "unit", ".envoy.type.v3.RateLimitUnit"),
                ),
            ),
        ),
    ),
    File(
        SERVICE_FILE,
        imports=(_BASE, _DESCRIPTOR, _DURATION, _STRUCT),
        messages=(
            Message(
                "RateLimitRequest",
                (
                    Field(1, "domain", "string"),
                    Field(2, "descriptors", _D, repeated=True),
                    Field(3, "hits_addend", "uint32"),
                ),
            ),
            Message(
                "RateLimitResponse",
                (
                    Field(1, "overall_code", _R + ".Code"),
                    Field(2, "statuses", _R + ".DescriptorStatus", repeated=True),
                    Field(3, "response_headers_to_add", _HEADER, repeated=True),
                    Field(4, "request_headers_to_add", _HEADER, repeated=True),
                    Field(5, "raw_body", "bytes"),
                    Field(6, "dynamic_metadata", _G + "Struct"),
                ),
            ),
            Message(
                "RateLimitResponse.RateLimit",
                (
                    Field(1, "requests_per_unit", "uint32"),
                    Field(2, "unit", _R + ".RateLimit.Unit"),
                    Field(3, "name", "string"),
                ),
            ),
            Message(
                "RateLimitResponse.DescriptorStatus",
                (
                    Field(1, "code", _R + ".Code"),
                    Field(2, "current_limit", _R + ".RateLimit"),
                    Field(3, "limit_remaining", "uint32"),
                    Field(4, "duration_until_reset", _G + "Duration"),
                ),
            ),
        ),
        choices=(
            Choice("RateLimitResponse.Code", (("UNKNOWN", 0), ("OK", 1), ("OVER_LIMIT", 2))),
            Choice("RateLimitResponse.RateLimit.Unit", (*_UNITS, ("WEEK", 7))),
        ),
    ),
)
