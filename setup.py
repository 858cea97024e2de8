"""The one thing `pyproject.toml` cannot say: which modules mypyc compiles, and when.

SLUICEGATE_COMPILE=auto (the default) compiles when a C compiler and mypyc are there, and installs
plain Python with one line saying so when they are not; 1 insists, 0 never compiles. The sources are
the same either way.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from setuptools import Distribution, setup
from setuptools.command.build_ext import build_ext
from setuptools.extension import Extension

# Checked here too, since pip compares versions only after the build has described itself.
PYTHON_MIN = (3, 11)
SRC = Path("src")
# Whole folders that are compiled, then single hot files of those that are not.
FOLDERS = (
    "kernels",
    "contracts",
    "policies",
    "policies/admission",
    "policies/cache",
    "policies/client",
    "policies/quota",
    "policies/suppression",
    "stores/memory",
)
# What mypyc reads about but must not compile. rulebook.py: the ledger's codec asks for the types of
# its fields, which a compiled NamedTuple forgets. chance.py, clock.py, image.py, observer.py: what
# a user may subclass, and nobody may subclass a compiled Protocol. edge.py: what it leaves open is
# said there.
NOT_COMPILED = (
    "__init__.py",
    "chance.py",
    "clock.py",
    "edge.py",
    "errors.py",
    "image.py",
    "must_await.py",
    "native.py",
    "observer.py",
    "rule_admin.py",
    "rulebook.py",
)
# Open to arguments of any type where `contracts/edge.py` says that they are checked.
MYPY_FLAGS = ("--always-true", "OPEN_EDGES")
HOT_FILES = (
    "apps/kv/admission.py",
    "apps/kv/callers.py",
    "apps/kv/dispatcher.py",
    "apps/kv/operations/get.py",
    "apps/kv/operations/hot_range.py",
    "apps/kv/operations/multi_get.py",
    "apps/kv/operations/scan.py",
    "apps/kv/operations/write.py",
    "apps/kv/response_memory.py",
    "apps/kv/quota_leases.py",
    "apps/kv/shield/hot_reads.py",
    "apps/kv/shield/keys.py",
    "apps/kv/shield/ranges.py",
    "apps/kv/shield/settings.py",
    "apps/kv/shield/shield.py",
    "apps/kv/tables/catalogue.py",
    "apps/kv/tables/catalogue_state.py",
    "apps/kv/tables/scan.py",
    "apps/kv/tables/tables.py",
    "apps/kv/tables/tokens.py",
    "apps/kv/tables/updates.py",
    "apps/kv/usage.py",
    "apps/limiter/ledger.py",
    "apps/limiter/service.py",
    "apps/limiter/throttle.py",
    "doors/connection.py",
    "doors/connection_pace.py",
    "doors/grpc/calls.py",
    "doors/grpc/framing.py",
    "doors/grpc/key_values.py",
    "doors/grpc/mesh.py",
    "doors/grpc/protocol.py",
    "doors/grpc/rate_limiter.py",
    "doors/grpc/route.py",
    "doors/grpc/settings.py",
    "doors/headers.py",
    "doors/http/exchange.py",
    "doors/http/head.py",
    "doors/http/protocol.py",
    "doors/resp/connection_commands.py",
    "doors/resp/errors.py",
    "doors/resp/kv/bulk.py",
    "doors/resp/kv/commands.py",
    "doors/resp/kv/call.py",
    "doors/resp/kv/counters.py",
    "doors/resp/kv/cursors.py",
    "doors/resp/kv/expiry.py",
    "doors/resp/kv/plan.py",
    "doors/resp/kv/scan.py",
    "doors/resp/kv/set.py",
    "doors/resp/kv/transactions.py",
    "doors/resp/kv/values.py",
    "doors/resp/limiter/checks.py",
    "doors/resp/limiter/commands.py",
    "doors/resp/limiter/stores.py",
    "doors/resp/order.py",
    "doors/resp/protocol.py",
    "doors/resp/session.py",
    "doors/sniff.py",
    "doors/stepper.py",
    "doors/turns.py",
    "limits/claims.py",
    "limits/glass/break_glass.py",
    "limits/lease.py",
    "limits/limiter.py",
    "limits/remote_keys.py",
    "limits/reservation.py",
    "limits/rule.py",
    "limits/terms.py",
    "limits/wait_lines.py",
    "rules/mesh/descriptor_state.py",
    "rules/mesh/identity.py",
    "rules/mesh/limit_fields.py",
    "rules/mesh/over_limit_cache.py",
    "rules/mesh/overrides.py",
    "rules/mesh/parser.py",
    "rules/mesh/responses.py",
    "rules/mesh/rule.py",
    "rules/mesh/rule_set.py",
    "rules/mesh/rule_stats.py",
    "rules/mesh/service.py",
    "rules/mesh/settings.py",
    "rules/resources/callers.py",
    "rules/resources/leases.py",
    "rules/resources/packed.py",
    "rules/resources/pages.py",
    "rules/resources/paths.py",
    "rules/resources/priorities.py",
    "rules/resources/rule.py",
    "rules/resources/rule_set.py",
    "rules/resources/service.py",
    "rules/shared_limits.py",
    "rules/web/rule_set.py",
    "shadow/query_keys.py",
    "shadow/capture/recorder.py",
    "shadow/entities.py",
    "shadow/pair.py",
    "shadow/sampling.py",
    "shadow/secret_names.py",
    "shadow/side.py",
    "shadow/replay_parts.py",
    "stores/engines/bounds.py",
    "stores/engines/lmdb/engine.py",
    "stores/engines/lmdb/layout.py",
    "stores/engines/lmdb/ranges.py",
    "stores/engines/memory.py",
    "stores/redis/batch.py",
    "stores/redis/counters.py",
    "stores/redis/script.py",
    "stores/redis/store.py",
    "stores/redis/thread_client.py",
    "stores/redis/thread_connection.py",
    "stores/redis/thread_waiter.py",
    "stores/redis/threads.py",
    "stores/redis/throttle.py",
    "stores/service/commands.py",
    "system.py",
    "telemetry/audit_ring.py",
    "telemetry/decision_metrics.py",
    "telemetry/labels.py",
    "telemetry/service_metrics.py",
    "wire/h2/blocks.py",
    "wire/h2/connection.py",
    "wire/h2/fields.py",
    "wire/h2/floods.py",
    "wire/h2/frames.py",
    "wire/h2/header_memo.py",
    "wire/h2/partial_block.py",
    "wire/h2/past_streams.py",
    "wire/h2/settings.py",
    "wire/h2/stream.py",
    "wire/h2/stream_states.py",
    "wire/key_values_messages.py",
    "wire/mesh_messages.py",
    "wire/protobuf.py",
    "wire/rate_limiter_messages.py",
    "wire/resp.py",
    "wire/row_envelope.py",
    "wire/row_stream.py",
    "wire/text.py",
)


def compiled_sources() -> list[str]:
    """Every module that mypyc compiles, in a fixed order."""
    package = SRC / "sluicegate"
    found = [
        path
        for folder in FOLDERS
        for path in sorted((package / folder).glob("*.py"))
        if path.name not in NOT_COMPILED
    ]
    found += [package / name for name in HOT_FILES]
    return [path.as_posix() for path in found]


def c_compiler() -> str | None:
    """The compiler that setuptools would call, if it is on this machine."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shutil.which(shlex.split(command)[0])


def missing_to_compile() -> str | None:
    """What this machine lacks for compiling, and how to get it."""
    if c_compiler() is None:
        return "no C compiler (Debian: apt-get install gcc python3-dev)"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "no Python.h (Debian: apt-get install python3-dev)"
    if find_spec("mypyc") is None:
        return "no mypyc (pip install 'mypy[mypyc]')"
    return None


def will_compile() -> bool:
    """Whether this build compiles; where it does not, a line says why."""
    wish = os.environ.get("SLUICEGATE_COMPILE", "auto")
    if wish not in {"0", "1", "auto"}:
        sys.exit(f"SLUICEGATE_COMPILE must be 0, 1 or auto, not {wish!r}")
    missing = None if wish == "0" else missing_to_compile()
    if missing is not None:
        if wish == "1":
            sys.exit(f"SLUICEGATE_COMPILE=1, but there is {missing}")
        print(f"sluicegate: {missing}; installing interpreted, slower and otherwise the same")
    return wish != "0" and missing is None


def extensions() -> list[Extension]:
    """Translate the modules to C, and return the extension modules to build from it."""
    from mypyc.build import mypycify

    # Without this folder's settings and this environment's packages, so that the same C comes out
    # wherever it is built. A file of C for each module: one for all takes gcc three times as long
    # and is faster by 4% at most. docs/decisions/0023-what-is-compiled-and-how.md has the figures.
    options = [*MYPY_FLAGS, "--config-file=", "--no-site-packages", "--ignore-missing-imports"]
    sources = compiled_sources()
    found = cast(
        "list[Extension]",
        mypycify([*options, *sources], opt_level="2", debug_level="0", multi_file=True),
    )
    modules = {c_name(source): Path(source) for source in sources}
    for path in {Path(path) for extension in found for path in extension.sources}:
        if path.name in modules:
            source = modules[path.name].read_text(encoding="utf-8")
            path.write_text(add_docs(path.read_text(encoding="utf-8"), source), encoding="utf-8")
    return found


# What `help` and `inspect` show. mypyc translates no docstring, and gives a function no signature
# where one default is no literal; such a default is `...` here.


def c_name(source: str) -> str:
    """The file of C that mypyc makes of a module."""
    return f"__native_{'___'.join(Path(source).relative_to(SRC).with_suffix('').parts)}.c"


def add_docs(translated: str, source: str) -> str:
    """A module's C with the signatures and docstrings of its classes."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            head = f"{node.name}()"
            for method in node.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    place = rf"CPyPy_(?:\w+___)?{node.name}___{method.name},"
                    text = f"{method.name}({signature_of(method)})"
                    translated = _fill(translated, place, text, method)
                    if method.name == "__init__":
                        head = f"{node.name}({signature_of(method).partition(', ')[2]})"
            place = rf'\.tp_name = "{node.name}",[^}}]*?\.tp_doc ='
            translated = _fill(translated, place, head, node)
    return _fill_dicts(translated, source)


def signature_of(method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The parameters without types, as CPython keeps them: with a $ before what is bound."""
    args = method.args
    for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]:
        if arg is not None:
            arg.annotation = None
    for defaults in (args.defaults, args.kw_defaults):
        for place, default in enumerate(defaults):
            if default is not None and not isinstance(default, ast.Constant):
                defaults[place] = ast.Constant(...)
    static = any(ast.unparse(by) == "staticmethod" for by in method.decorator_list)
    return ast.unparse(args) if static else f"${ast.unparse(args)}"


def _fill(translated: str, place: str, head: str, node: ast.ClassDef | ast.stmt) -> str:
    """Put a signature and a docstring into the PyDoc_STR next to a place, if there is one."""
    doc = ast.get_docstring(cast("ast.ClassDef", node)) or ""
    quoted = _quoted(f"{head}\n--\n\n{doc}")
    pattern = rf'({place}[^"}}]*?PyDoc_STR\()(?:NULL|"(?:[^"\\]|\\.)*")\)'
    return re.sub(pattern, lambda found: f'{found[1]}"{quoted}")', translated, count=1)


def _quoted(text: str) -> str:
    """Return what stands between the quotes of a C string."""
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
        for byte in text.encode()
    )


def _fill_dicts(translated: str, source: str) -> str:
    """Put docstrings into the classes that mypyc leaves to Python, such as named tuples.

    mypyc writes one text as the `__doc__` of all of them, and names the class soon after it.
    """
    docs = {
        node.name: ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
    }

    def own(found: re.Match[str]) -> str:
        doc = docs.get(found[2].rpartition("___")[2])
        return found[0] if doc is None else f'= PyUnicode_FromString("{_quoted(doc)}");{found[1]}'

    filler = r"= CPyStatics\[\d+\]; /\* 'mypyc filler docstring' \*/"
    return re.sub(rf"{filler}((?:.*\n)*?.*?CPyType_(\w+) = \(PyTypeObject)", own, translated)


class CompilingDistribution(Distribution):
    """A distribution that has extension modules, though they are not there yet."""

    def has_ext_modules(self) -> bool:
        """Let the wheel name its platform."""
        return True


class CompileModules(build_ext):
    """Translate when there is something to build, and let every core run gcc.

    A build describes itself several times before it builds, and a source archive holds no C.
    """

    def run(self) -> None:
        """Translate and build."""
        self.distribution.ext_modules = [*extensions()]
        self.parallel = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else True
        vars(self)["swig_opts"] = None  # or it cannot be finalized a second time
        self.finalize_options()
        super().run()

    def build_extensions(self) -> None:
        """Compile the files of one extension module beside each other too."""
        compile_in_line = self.compiler.compile

        def compile_side_by_side(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(cast("int", self.parallel)) as pool:
                found = pool.map(lambda source: compile_in_line([source], **options), sources)
                return [name for names in found for name in names]

        self.compiler.compile = compile_side_by_side
        super().build_extensions()


def main() -> None:
    """Build what this machine can."""
    if sys.version_info < PYTHON_MIN:
        needed = ".".join(map(str, PYTHON_MIN))
        sys.exit(f"sluicegate needs Python {needed} or newer; this is {sys.version.split()[0]}")
    if will_compile():
        setup(distclass=CompilingDistribution, cmdclass={"build_ext": CompileModules})
    else:
        setup()


if __name__ == "__main__":
    main()
