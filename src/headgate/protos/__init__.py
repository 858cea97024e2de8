"""What is published of the gRPC services: .proto files, what is made of them, descriptors.

`PROTO_ROOT` is the include path for any protobuf compiler, in any language. `rate_limiter_pb2` and
`rate_limiter_pb2_grpc` are the Python client; importing them takes the packages of the extra
`grpc`, and nothing of the service's own path does. `descriptor_set` is for server reflection: it is
read as bytes and registered nowhere, because a process may have Envoy's own classes too.
Everything generated is made anew by `python -m headgate.protos.generate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headgate.contracts.errors import BadValue

__all__ = ["HEADGATE", "MESH", "PROTO_ROOT", "descriptor_set"]

PROTO_ROOT: Final = Path(__file__).resolve().parent

HEADGATE: Final = "headgate_v1"  # headgate.v1.RateLimiter
MESH: Final = "envoy_rls_v3"  # envoy.service.ratelimit.v3.RateLimitService


def descriptor_set(name: str) -> bytes:
    """The serialized `FileDescriptorSet` of a service: its files, each behind those it imports."""
    if name not in (HEADGATE, MESH):
        raise BadValue("descriptor_set", name, f"give {HEADGATE} or {MESH}")
    return (PROTO_ROOT / f"{name}.binpb").read_bytes()
