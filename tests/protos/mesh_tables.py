"""The messages that Envoy's rate-limit service speaks, as tables: names, numbers and types.

Only for server reflection: `generate.py` makes descriptors of them, under the names that they have
on the wire, so that tools which ask a server for its services can call this one. What we neither
read nor write is left out, and a reader skips it as it skips any unknown field.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class ProtoField(NamedTuple):
    """A field: `type` is a scalar's word, or the full name of a message or enum behind a dot."""

    number: int
    name: str
    type: str
    repeated: bool = False
    oneof: str = ""


class ProtoMessage(NamedTuple):
    """A message by its name inside its package; `map_entry` is what a map is made of."""

    name: str
    fields: tuple[ProtoField, ...]
    map_entry: bool = False


class ProtoEnum(NamedTuple):
    """An enum by its name inside its package, and its values."""

    name: str
    values: tuple[tuple[str, int], ...]


class ProtoFile(NamedTuple):
    """A file by its path, and those whose types it uses; each after what it imports."""

    path: str
    imports: tuple[str, ...] = ()
    messages: tuple[ProtoMessage, ...] = ()
    choices: tuple[ProtoEnum, ...] = ()


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
    ProtoFile(
        _DURATION,
        messages=(
            ProtoMessage(
                "Duration", (ProtoField(1, "seconds", "int64"), ProtoField(2, "nanos", "int32"))
            ),
        ),
    ),
    ProtoFile(
        _STRUCT,
        messages=(
            ProtoMessage(
                "Struct", (ProtoField(1, "fields", _G + "Struct.FieldsEntry", repeated=True),)
            ),
            ProtoMessage(
                "Struct.FieldsEntry",
                (ProtoField(1, "key", "string"), ProtoField(2, "value", _G + "Value")),
                map_entry=True,
            ),
            ProtoMessage(
                "Value",
                (
                    ProtoField(1, "null_value", _G + "NullValue", oneof="kind"),
                    ProtoField(2, "number_value", "double", oneof="kind"),
                    ProtoField(3, "string_value", "string", oneof="kind"),
                    ProtoField(4, "bool_value", "bool", oneof="kind"),
                    ProtoField(5, "struct_value", _G + "Struct", oneof="kind"),
                    ProtoField(6, "list_value", _G + "ListValue", oneof="kind"),
                ),
            ),
            ProtoMessage("ListValue", (ProtoField(1, "values", _G + "Value", repeated=True),)),
        ),
        choices=(ProtoEnum("NullValue", (("NULL_VALUE", 0),)),),
    ),
    ProtoFile(
        _WRAPPERS, messages=(ProtoMessage("UInt64Value", (ProtoField(1, "value", "uint64"),)),)
    ),
    ProtoFile(
        _BASE,
        messages=(
            ProtoMessage(
                "HeaderValue", (ProtoField(1, "key", "string"), ProtoField(2, "value", "string"))
            ),
        ),
    ),
    ProtoFile(_UNIT, choices=(ProtoEnum("RateLimitUnit", _UNITS),)),
    ProtoFile(
        _DESCRIPTOR,
        imports=(_UNIT, _WRAPPERS),
        messages=(
            ProtoMessage(
                "RateLimitDescriptor",
                (
                    ProtoField(1, "entries", _D + ".Entry", repeated=True),
                    ProtoField(2, "limit", _D + ".RateLimitOverride"),
                    ProtoField(3, "hits_addend", _G + "UInt64Value"),
                ),
            ),
            ProtoMessage(
                "RateLimitDescriptor.Entry",
                (ProtoField(1, "key", "string"), ProtoField(2, "value", "string")),
            ),
            ProtoMessage(
                "RateLimitDescriptor.RateLimitOverride",
                (
                    ProtoField(1, "requests_per_unit", "uint32"),
                    ProtoField(2, "unit", ".envoy.type.v3.RateLimitUnit"),
                ),
            ),
        ),
    ),
    ProtoFile(
        SERVICE_FILE,
        imports=(_BASE, _DESCRIPTOR, _DURATION, _STRUCT),
        messages=(
            ProtoMessage(
                "RateLimitRequest",
                (
                    ProtoField(1, "domain", "string"),
                    ProtoField(2, "descriptors", _D, repeated=True),
                    ProtoField(3, "hits_addend", "uint32"),
                ),
            ),
            ProtoMessage(
                "RateLimitResponse",
                (
                    ProtoField(1, "overall_code", _R + ".Code"),
                    ProtoField(2, "statuses", _R + ".DescriptorStatus", repeated=True),
                    ProtoField(3, "response_headers_to_add", _HEADER, repeated=True),
                    ProtoField(4, "request_headers_to_add", _HEADER, repeated=True),
                    ProtoField(5, "raw_body", "bytes"),
                    ProtoField(6, "dynamic_metadata", _G + "Struct"),
                ),
            ),
            ProtoMessage(
                "RateLimitResponse.RateLimit",
                (
                    ProtoField(1, "requests_per_unit", "uint32"),
                    ProtoField(2, "unit", _R + ".RateLimit.Unit"),
                    ProtoField(3, "name", "string"),
                ),
            ),
            ProtoMessage(
                "RateLimitResponse.DescriptorStatus",
                (
                    ProtoField(1, "code", _R + ".Code"),
                    ProtoField(2, "current_limit", _R + ".RateLimit"),
                    ProtoField(3, "limit_remaining", "uint32"),
                    ProtoField(4, "duration_until_reset", _G + "Duration"),
                ),
            ),
        ),
        choices=(
            ProtoEnum("RateLimitResponse.Code", (("UNKNOWN", 0), ("OK", 1), ("OVER_LIMIT", 2))),
            ProtoEnum("RateLimitResponse.RateLimit.Unit", (*_UNITS, ("WEEK", 7))),
        ),
    ),
)
