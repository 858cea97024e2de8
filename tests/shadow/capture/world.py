"""What the tests of capturing share: asks by chance, a log in a folder, its files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from hypothesis import strategies as st

from sluicegate.contracts.checks import CheckRequest, Descriptor, MeshRequest, Override
from sluicegate.contracts.criticality import Criticality
from sluicegate.kernels.path_index import plain_path
from sluicegate.shadow.capture.format import blocks, read_head
from sluicegate.shadow.capture.key import CaptureKey
from sluicegate.shadow.capture.log import CaptureLog
from sluicegate.shadow.capture.settings import HEADERS_DEFAULT, CaptureSettings
from sluicegate.shadow.query_keys import QueryKey, check_key, full_key, mesh_key
from sluicegate.shadow.redaction import Vocabulary
from sluicegate.shadow.traffic import ALL, CapturedTraffic
from sluicegate.testing import START_US, HandClock

KEY = CaptureKey(b"k" * 32)
HEADERS = tuple(sorted(HEADERS_DEFAULT))
Request = tuple[int, int, "CheckRequest | MeshRequest"]

# Long enough not to stand in a file by chance, and with marks that formats stumble over.
VALUES = st.text("abcdefgh é/|\\~=%\n\0", min_size=7, max_size=12).filter(
    lambda one: one.strip("/")
)
_SEGMENTS = st.text("abcdefgh-é~", min_size=7, max_size=12)
_NUMBERS = st.integers(0, (1 << 32) - 1)

CHECKS = st.builds(
    CheckRequest,
    VALUES,
    st.lists(_SEGMENTS, max_size=4).map(lambda parts: "/" + "/".join(parts)),
    headers=st.dictionaries(st.sampled_from(HEADERS), VALUES, max_size=2),
    cost=_NUMBERS,
    priority=st.none() | st.sampled_from(Criticality),
)
DESCRIPTORS = st.builds(
    Descriptor,
    st.lists(st.tuples(st.sampled_from(["tenant", "path", "generic_key"]), VALUES), min_size=1,
             max_size=3),
    override=st.none() | st.builds(Override, _NUMBERS, st.integers(1, 7)),
    cost=st.integers(-1, 1 << 60),
)  # fmt: skip
MESHES = st.builds(
    MeshRequest,
    st.sampled_from(["shop", "edge"]),
    st.lists(DESCRIPTORS, min_size=1, max_size=3),
    _NUMBERS,
)
REQUESTS = st.lists(
    st.tuples(
        st.integers(START_US, START_US + 10**9) | st.integers(0, 1 << 60),
        st.sampled_from([-1, 0, 1]),
        CHECKS | MESHES,
    ),
    max_size=30,
)


def settings(folder: Path, **options: object) -> CaptureSettings:
    return CaptureSettings(**{"folder": str(folder), "share": ALL, **options})  # type: ignore[arg-type]


def key_of(query: CheckRequest | MeshRequest) -> QueryKey:
    return check_key(query, HEADERS) if isinstance(query, CheckRequest) else mesh_key(query)


def written(
    folder: Path, requests: Iterable[Request], *, batch: int = 10, **options: object
) -> CaptureLog:
    """A log of these requests, ended."""
    log = CaptureLog(settings(folder, **options), KEY, clock=HandClock())
    rows = [(at_us, outcome, key_of(query)) for at_us, outcome, query in requests]
    for begin in range(0, len(rows), batch):
        log.write(rows[begin : begin + batch])
    log.close()
    return log


def vocabulary(queries: Iterable[CheckRequest | MeshRequest]) -> Vocabulary:
    """All texts of these asks."""
    return Vocabulary(values_of(queries), key=KEY)


def values_of(queries: Iterable[CheckRequest | MeshRequest]) -> set[str]:
    """All texts that a redaction must hide."""
    values: set[str] = set()
    for query in queries:
        if isinstance(query, CheckRequest):
            values.add(query.user_id)
            values.update(part for part in plain_path(query.resource_path).split("/") if part)
            values.update(query.headers.values())
        else:
            for one in query.descriptors:
                values.update(value for _, value in one.entries)
    return values


def rows_of(captured: CapturedTraffic) -> list[tuple[int, int, QueryKey]]:
    """A capture as plain rows."""
    keys = [full_key(query) for query in captured.queries]
    return [
        (at_us, outcome, keys[number])
        for at_us, outcome, number in zip(
            captured.at_us, captured.outcomes, captured.which, strict=True
        )
    ]


def expected(requests: Sequence[Request]) -> list[tuple[int, int, QueryKey]]:
    """What a capture of these must tell: paths as rules see them, in order of time."""
    rows: list[tuple[int, int, QueryKey]] = []
    for at_us, outcome, query in requests:
        key = key_of(query)
        if len(key) == 5:
            key = (key[0], plain_path(key[1]), *key[2:])
        rows.append((at_us, outcome, key))
    return rows


def segment_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.sgc"))


def unpacked(folder: Path) -> bytes:
    """All that stands in the files, as it stands there and unpacked."""
    parts: list[bytes] = []
    for path in segment_files(folder):
        data = path.read_bytes()
        head = read_head(data, path.name)
        assert not isinstance(head, str)
        parts += [data, *[block.data for block in blocks(data, head[1], head[0].salt)]]
    return b"\n".join(parts)
