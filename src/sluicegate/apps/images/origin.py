"""Origin: downloads, from servers that are strangers.

Whatever an origin does costs a bounded time and a bounded number of bytes, ends as an answer or as
an `ImageFailure` with a kind, and never reaches an address that `addresses.py` refuses.

aiohttp is the client, since its connector hands each address to a function of ours that makes the
socket (`socket_factory`), at the moment when it connects: what is judged there is what is connected
to, whether it stood in the URL or came from DNS, and no name is looked up after that. httpx leaves
resolving to its transport, where an address can be pinned only by rewriting the URL and with it
Host and SNI. Redirects are followed here, each as a URL of its own, with the same checks.

Protection is the resilience kit: `ResilientClient` (deadline, retries in a budget, a breaker and a
throttle for each host), slots for each host and a queue for them (`origin_slots.py`), and one
`Room` for the bytes of all. Not followed: cookies, proxies of the environment, credentials in URLs.
Nothing is decompressed: identity is asked for, and a body with another coding is refused, so no
small body becomes a large one.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final
from urllib.parse import urljoin, urlsplit, urlunsplit

from sluicegate import __version__
from sluicegate.apps.images.addresses import PORTS, AddressRules
from sluicegate.apps.images.origin_slots import OriginSlots
from sluicegate.apps.images.room import Held, Room
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, MissingPackage, Refused
from sluicegate.contracts.image import ImageErrorKind, ImageFailure
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.policies.client.retry import RetrySettings
from sluicegate.policies.images.cache_control import OriginCaching, read_caching
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.settings import ClientSettings

try:
    import aiohttp
    from aiohttp.abc import AbstractResolver
    from yarl import URL
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "aiohttp", "images") from None

URL_CHARS_MAX: Final = 4_096
CHUNK_BYTES: Final = 1 << 16
ROOM_MARGIN_S: Final = 0.25  # who waits for room is refused before it is late: no fault of a host
TAG_CHARS_MAX: Final = 1_024  # of an ETag or a date that is sent back
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_GONE: Final = (404, 410)
_UNPRINTABLE: Final = re.compile(r"[\x00-\x20\x7f\ud800-\udfff]")  # or no text: bytes of a shell
_SCHEMES: Final = {"http": 80, "https": 443}
# Why addresses of the attempt that this task makes were refused; a driver's error names no cause.
_refusals: ContextVar[list[str]] = ContextVar("refusals")


class Validators(NamedTuple):
    """What an origin said its answer is known by, as it said it; empty is nothing."""

    etag: str = ""
    last_modified: str = ""


class Download(NamedTuple):
    """What an origin answered: the bytes, or None if it says that nothing has changed.

    Whoever has it calls `held.free()` once the bytes are no longer needed.
    """

    body: bytes | None
    validators: Validators
    caching: OriginCaching | None  # None where a 304 says nothing of it
    took_us: int
    held: Held


class _Answer(NamedTuple):
    """The same, of one hop."""

    body: bytes | None
    validators: Validators
    caching: OriginCaching | None


@dataclass(frozen=True, kw_only=True)
class OriginSettings:
    """Bounds of downloads."""

    networks: Sequence[str] = ()
    hosts: Sequence[str] = ()
    ports: Sequence[int] = PORTS
    bytes_max: int = 32 << 20
    timeout_s: float = 20.0  # for a whole download, redirects and repetitions included
    idle_s: float = 5.0  # without a byte
    redirects_max: int = 4
    per_host: int = 16  # downloads at a time
    downloads_max: int = 256  # of all hosts
    held_bytes_max: int = 256 << 20  # by all downloads together


@final
class Origin:
    """Downloads images. Made within the loop that uses it."""

    def __init__(
        self, settings: OriginSettings, clock: Clock, resolver: AbstractResolver | None = None
    ) -> None:
        self.settings = settings
        self._rules = AddressRules(settings.networks, settings.hosts, settings.ports)
        self._clock = clock
        timeout_us = int(settings.timeout_s * 1e6)
        self._client = ResilientClient(
            ClientSettings(
                timeout_us=timeout_us,
                attempt_us=timeout_us,
                margin_us=0,
                retry=RetrySettings(attempts=(2, 2, 1, 1)),
            ),
            clock=clock,
        )
        self.slots = OriginSlots(settings.per_host, settings.downloads_max, clock)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=resolver,
                use_dns_cache=False,
                limit=settings.downloads_max,
                socket_factory=self._open_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=settings.idle_s, sock_read=settings.idle_s
            ),
            headers={"User-Agent": f"sluicegate/{__version__}", "Accept-Encoding": "identity"},
        )
        self.room = Room(settings.held_bytes_max, settings.bytes_max)
        self.downloads = 0
        self.unchanged = 0
        self.bytes = 0
        self.failed: dict[str, int] = {}

    async def fetch(
        self, url: str, known: Validators | None = None, request: Request | None = None
    ) -> Download:
        """Download, or learn that what is `known` by these validators has not changed.

        Raise `ImageFailure`; `Refused` where our own protection keeps the origin from being asked.
        """
        begun_us = self._clock.now_us()
        held = Held(self.room)
        try:
            answer = await self._follow(url, known, request, held)
        except BaseException as error:
            held.free()
            if isinstance(error, ImageFailure):
                self.failed[error.kind] = self.failed.get(error.kind, 0) + 1
            raise
        if answer.body is None:
            self.unchanged += 1
        else:
            self.downloads += 1
            self.bytes += len(answer.body)
        return Download(*answer, self._clock.now_us() - begun_us, held)

    def requeue(self, request: Request, now_us: int) -> None:
        """Move a waiting download to the class that its request has now."""
        self.slots.requeue(request, now_us)

    async def close(self) -> None:
        """End all connections."""
        await self._session.close()

    def states(self) -> dict[str, str]:
        """The breaker of each host that was asked."""
        return {key[0]: state for key, state in self._client.breaker.states().items()}

    # Inside.

    async def _follow(
        self, url: str, known: Validators | None, request: Request | None, held: Held
    ) -> _Answer:
        left_us = int(self.settings.timeout_s * 1e6)
        by = Request(url) if request is None else request
        for _ in range(self.settings.redirects_max + 1):
            hop = self._hop(check_url(url))
            slot = await self.slots.enter(hop.shard, by)
            begun_us = self._clock.now_us()
            # The time in the queue and a caller's short deadline are not the origin's fault.
            hop.deadline_us, hop.criticality = begun_us + left_us, by.criticality
            outcome = Outcome.IGNORE
            try:
                result = await self._ask(hop, hop.deadline_us, known, held)
                outcome = result.outcome
            finally:
                slot.end(outcome, self._clock.now_us())
            if isinstance(result.error, TimeoutError):
                raise ImageFailure(ImageErrorKind.TIMEOUT, "it did not answer in time")
            found = result.unwrap()
            if not isinstance(found, str):
                return found
            url, known = _redirected(url, found), None
            left_us = max(0, left_us - (self._clock.now_us() - begun_us))
        raise ImageFailure(
            ImageErrorKind.ORIGIN_DOWN, f"more than {self.settings.redirects_max} redirects"
        )

    def _hop(self, url: str) -> Request:
        """Return the request for one URL, by host; raise `ImageFailure` if it is forbidden."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _SCHEMES[parts.scheme]
        refusal = self._rules.refuse_host(host)
        if refusal:
            raise ImageFailure(ImageErrorKind.FORBIDDEN, refusal)
        return Request(url, shard=f"{host}:{port}", operation="GET")

    async def _ask(
        self, hop: Request, deadline_us: int, known: Validators | None, held: Held
    ) -> CallResult[str | _Answer]:
        """Send one hop, within our protection: return an answer, or the target of a redirect."""
        return await self._client.call(
            lambda _: self._attempt(hop.key, known, deadline_us, held), hop, idempotent=True
        )

    async def _attempt(
        self, url: str, known: Validators | None, deadline_us: int, held: Held
    ) -> CallResult[str | _Answer]:
        """One request. What is the origin's failure counts for its breaker; a 404 does not."""
        refusals: list[str] = []
        _refusals.set(refusals)
        held.free()  # of an attempt before
        try:
            return CallResult(ResultKind.OK, await self._send(url, known, deadline_us, held))
        except (ImageFailure, Refused) as error:  # the latter by our own room
            return CallResult(ResultKind.REJECTED, error=error)
        except _FailingError as error:
            down = _down(f"the origin answers {error.status}")
            return CallResult(ResultKind.FAILED, error=down)
        except TimeoutError:  # aiohttp's too
            silent = ImageFailure(ImageErrorKind.TIMEOUT, "it fell silent")
            return CallResult(ResultKind.TIMED_OUT, error=silent)
        except (aiohttp.InvalidURL, UnicodeError):  # the latter of a name that DNS cannot have
            return CallResult(ResultKind.REJECTED, error=_down("it is no URL of a server"))
        except aiohttp.ClientConnectorError as error:
            if refusals:
                return CallResult(
                    ResultKind.REJECTED, error=ImageFailure(ImageErrorKind.FORBIDDEN, refusals[0])
                )
            detail = f"no connection to it ({error.os_error.strerror or type(error).__name__})"
            return CallResult(ResultKind.UNREACHED, error=_down(detail))
        except (aiohttp.ClientError, OSError) as error:
            detail = f"the connection broke ({type(error).__name__})"
            return CallResult(ResultKind.FAILED, error=_down(detail))

    async def _send(
        self, url: str, known: Validators | None, deadline_us: int, held: Held
    ) -> str | _Answer:
        headers: dict[str, str] = {}
        if known is not None and known.etag:
            headers["If-None-Match"] = known.etag
        if known is not None and known.last_modified:
            headers["If-Modified-Since"] = known.last_modified
        async with self._session.get(
            URL(url, encoded=True), headers=headers, allow_redirects=False
        ) as answer:
            status = answer.status
            if status in _REDIRECTS:
                return answer.headers.get("Location", "")
            if status == 304 and known is not None:
                return _Answer(None, _validators_of(answer, known), _caching_of(answer, None))
            if status in _GONE:
                raise ImageFailure(ImageErrorKind.NOT_FOUND, f"the origin answers {status}")
            if status >= 500 or status == 429:
                raise _FailingError(status)
            if status != 200:
                raise _down(f"the origin answers {status}")
            coding = answer.headers.get("Content-Encoding", "identity").strip().lower()
            if coding not in ("", "identity"):
                detail = f"the body is coded ({coding[:40]!a})"
                raise ImageFailure(ImageErrorKind.WRONG_TYPE, detail)
            body = await self._read(answer, deadline_us, held)
            return _Answer(
                body, _validators_of(answer, Validators()), _caching_of(answer, OriginCaching())
            )

    async def _read(self, answer: aiohttp.ClientResponse, deadline_us: int, held: Held) -> bytes:
        bytes_max = self.settings.bytes_max
        too_large = ImageFailure(ImageErrorKind.TOO_LARGE, f"it has more than {bytes_max:,} bytes")
        if (answer.content_length or 0) > bytes_max:
            answer.close()
            raise too_large
        body = bytearray()
        async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
            if len(body) + len(chunk) > bytes_max:
                answer.close()
                raise too_large
            left_s = (deadline_us - self._clock.now_us()) / 1e6 - ROOM_MARGIN_S
            await held.add(len(chunk), max(0.0, min(self.settings.idle_s, left_s)))
            body += chunk
        return bytes(body)

    def _open_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """The last word on an address: made for exactly the one that is connected to next."""
        family, kind, protocol, _, where = info
        refusal = self._rules.refuse_address(where[0], where[1])
        if refusal:
            _refusals.get().append(refusal)
            raise PermissionError(errno.EACCES, refusal)  # the next address may be one that may
        return socket.socket(family, kind, protocol)


class _FailingError(Exception):
    """The origin says that it is not well, which counts for its breaker."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def _down(detail: str) -> ImageFailure:
    return ImageFailure(ImageErrorKind.ORIGIN_DOWN, detail)


def check_url(url: str) -> str:
    """The URL, normal and without its fragment; `BadValue` for one that is never asked."""
    if len(url) > URL_CHARS_MAX:
        raise BadValue("url", url, f"give at most {URL_CHARS_MAX:,} characters")
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    scheme = parts.scheme.lower()
    if scheme not in _SCHEMES or not host:
        raise BadValue("url", url, "give an http:// or https:// URL")
    if "@" in parts.netloc:
        raise BadValue("url", url, "leave the credentials out")
    if _UNPRINTABLE.search(url.strip()):
        raise BadValue("url", url, "percent-encode what is not printable")
    name = f"[{host}]" if ":" in host else host
    if port not in (None, _SCHEMES[scheme]):
        name = f"{name}:{port}"
    return urlunsplit((scheme, name, parts.path or "/", parts.query, ""))


def _redirected(url: str, location: str) -> str:
    try:
        target = check_url(urljoin(url, location)) if location else ""
    except (BadValue, ValueError):
        target = ""
    if not target:
        raise ImageFailure(
            ImageErrorKind.ORIGIN_DOWN, "it redirects to what is no http:// or https:// URL"
        )
    return target


def _validators_of(answer: aiohttp.ClientResponse, known: Validators) -> Validators:
    """What the answer says, if it can be sent back; of a 304 without them, what was known."""
    etag = answer.headers.get("ETag", known.etag)
    modified = answer.headers.get("Last-Modified", known.last_modified)
    return Validators(etag if _is_plain(etag) else "", modified if _is_plain(modified) else "")


def _caching_of(
    answer: aiohttp.ClientResponse, unsaid: OriginCaching | None
) -> OriginCaching | None:
    """Return the caching that the answer permits; `unsaid` without `Cache-Control`."""
    values = answer.headers.getall("Cache-Control", [])
    return read_caching(", ".join(values), answer.headers.get("Age", "")) if values else unsaid


def _is_plain(value: str) -> bool:
    return len(value) <= TAG_CHARS_MAX and value.isascii() and value.isprintable()
