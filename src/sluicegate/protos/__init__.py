"""What is published of the gRPC services: .proto files, what is made of them, descriptors.

`PROTO_ROOT` is the include path for any protobuf compiler, in any language. `rate_limiter_pb2`,
`key_values_pb2` and their `_grpc` are the Python clients; importing them takes the packages of the
extra `grpc`, and nothing of the services' own path does. `descriptor_set` is for server reflection:
it is read as bytes and registered nowhere, because a process may have Envoy's own classes too.
Everything generated is made anew by `python -m tests.protos.generate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sluicegate.contracts.errors import BadValue

__all__ = ["KEY_VALUES", "MESH", "PROTO_ROOT", "SLUICEGATE", "descriptor_set"]

PROTO_ROOT: Final = Path(__file__).resolve().parent

SLUICEGATE: Final = "sluicegate_v1"  # sluicegate.v1.RateLimiter
KEY_VALUES: Final = "sluicegate_kv_v1"  # sluicegate.v1.KeyValues
MESH: Final = "envoy_rls_v3"  # envoy.service.ratelimit.v3.RateLimitService


def descriptor_set(name: str) -> bytes:
    """The serialized `FileDescriptorSet` of a service: its files, each behind those it imports."""
    if name not in (SLUICEGATE, KEY_VALUES, MESH):
        raise BadValue("descriptor_set", name, f"give {SLUICEGATE}, {KEY_VALUES} or {MESH}")
    return (PROTO_ROOT / f"{name}.binpb").read_bytes()
