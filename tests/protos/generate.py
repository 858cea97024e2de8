"""Generate what is generated in sluicegate/protos. Run it after a change of a .proto file.

    python -m tests.protos.generate [FOLDER]

Needs grpcio-tools and mypy-protobuf (the group `dev`). Three things of the compilers' output are
changed. Imports name this package. The server's half is left out: these are clients, and the server
is `doors/grpc`. The checks that refuse a runtime older than the compiler are left out too: the code
is the same for all of them, and the tests of the extra `grpc` say from which version on it works.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from sluicegate.protos import KEY_VALUES, MESH, PROTO_ROOT, SLUICEGATE
from tests.protos.mesh_tables import (
    FILES,
    METHOD,
    SERVICE,
    SERVICE_FILE,
    ProtoField,
    ProtoFile,
)

# Each source, and the set that has its descriptors: a server reflects the services it has.
SOURCES: Final = {
    "sluicegate/v1/rate_limiter.proto": SLUICEGATE,
    "sluicegate/v1/key_values.proto": KEY_VALUES,
}
MADE: Final = (
    *(
        f"{Path(source).stem}{ending}"
        for source in SOURCES
        for ending in ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")
    ),
    *(f"{name}.binpb" for name in (*SOURCES.values(), MESH)),
)

_HEAD: Final = '"""Made by tests/protos/generate.py from {}; not to be edited."""\n\n'
# What the compilers write about their own versions.
_VERSION_LINES: Final = re.compile(
    r"^# Protobuf Python Version: .*\n"
    r"|^from google\.protobuf import runtime_version as .*\n"
    r"|^_runtime_version\.ValidateProtobufRuntimeVersion\(\n(?:    .*\n)*\)\n"
    r"|^import warnings\n"
    r"|^GRPC_GENERATED_VERSION = (?:.*\n)*?if _version_not_supported:\n(?:    .*\n)*",
    re.MULTILINE,
)

# A `_grpc` module from its servicer on.
_SERVER: Final = re.compile(r"\s+class \w+Servicer\b.*", re.DOTALL)


def generate(folder: Path) -> None:
    """Write all that is generated into this folder."""
    for source, name in SOURCES.items():
        with tempfile.TemporaryDirectory(prefix="sluicegate-protos-") as made:
            _compile(source, Path(made), f"{folder / name}.binpb")
            for path in sorted((Path(made) / source).parent.iterdir()):
                code = path.read_text(encoding="utf-8")
                (folder / path.name).write_text(_adapted(source, code), encoding="utf-8")
    mesh = FileDescriptorSet(file=[_file(file) for file in FILES])
    (folder / f"{MESH}.binpb").write_bytes(mesh.SerializeToString(deterministic=True))


def _compile(source: str, folder: Path, descriptors: str) -> None:
    words = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTO_ROOT}"]
    for plugin in ("protoc-gen-mypy", "protoc-gen-mypy_grpc"):
        # Beside the interpreter, where a virtual environment that is not active has it.
        found = shutil.which(plugin, path=str(Path(sys.executable).parent)) or shutil.which(plugin)
        if found is None:
            sys.exit(f"{plugin} is missing; install mypy-protobuf (the group dev)")
        words.append(f"--plugin={plugin}={found}")
    words += [f"--python_out={folder}", f"--grpc_python_out={folder}"]
    words += [f"--mypy_out=quiet:{folder}", f"--mypy_grpc_out=quiet:{folder}"]
    subprocess.run([*words, f"--descriptor_set_out={descriptors}", source], check=True)


def _adapted(source: str, code: str) -> str:
    code = _SERVER.sub("\n", _VERSION_LINES.sub("", code))
    code = code.replace("from sluicegate.v1 import", "from sluicegate.protos import")
    module = f"{Path(source).stem}_pb2"
    code = code.replace(f"sluicegate.v1.{module}", f"sluicegate.protos.{module}")
    return _HEAD.format(source) + code


def _file(file: ProtoFile) -> FileDescriptorProto:
    made = FileDescriptorProto(
        name=file.path,
        package=".".join(file.path.split("/")[:-1]),
        dependency=file.imports,
        syntax="proto3",
    )
    messages: dict[str, DescriptorProto] = {}
    for message in file.messages:
        outer, _, name = message.name.rpartition(".")
        place = messages[outer].nested_type if outer else made.message_type
        messages[message.name] = proto = place.add(name=name)
        _add_fields(proto, message.fields)
        proto.options.map_entry = message.map_entry
        if not message.map_entry:
            proto.ClearField("options")
    for choice in file.choices:
        outer, _, name = choice.name.rpartition(".")
        enums = messages[outer].enum_type if outer else made.enum_type
        _add_values(enums.add(name=name), choice.values)
    if file.path == SERVICE_FILE:
        method, request_name, answered = METHOD
        made.service.add(name=SERVICE).method.add(
            name=method,
            input_type=f".{made.package}.{request_name}",
            output_type=f".{made.package}.{answered}",
        )
    return made


def _add_values(enum: EnumDescriptorProto, values: Sequence[tuple[str, int]]) -> None:
    for name, number in values:
        enum.value.add(name=name, number=number)


def _add_fields(proto: DescriptorProto, fields: Sequence[ProtoField]) -> None:
    enums = {
        f".{'.'.join(file.path.split('/')[:-1])}.{choice.name}"
        for file in FILES
        for choice in file.choices
    }
    for field in fields:
        label = FieldDescriptorProto.LABEL_OPTIONAL
        if field.repeated:
            label = FieldDescriptorProto.LABEL_REPEATED
        made = proto.field.add(name=field.name, number=field.number, label=label)
        if field.type[0] == ".":
            made.type_name = field.type
            made.type = FieldDescriptorProto.TYPE_MESSAGE
            if field.type in enums:
                made.type = FieldDescriptorProto.TYPE_ENUM
        else:
            made.type = FieldDescriptorProto.Type.Value(f"TYPE_{field.type.upper()}")
        if field.oneof:
            if not proto.oneof_decl:
                proto.oneof_decl.add(name=field.oneof)
            made.oneof_index = 0


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTO_ROOT)
