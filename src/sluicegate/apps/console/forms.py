"""Forms: what a page of ours sends when somebody presses a button, and that it is ours.

Each form carries a mark that only a page of this console, shown to this browser, can have: another
site cannot read our pages. It is beside the check of Origin and the cookies' SameSite, not instead.
The mark is made of the browser's sessions, so logging out ends it too.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Final, final
from urllib.parse import parse_qs

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.http.message import HttpReply, HttpRequest

FORM: Final = "application/x-www-form-urlencoded"
MARK: Final = "form_mark"
HTML: Final = b"text/html; charset=utf-8"
_FIELDS_MAX: Final = 16
_SECRET_BYTES: Final = 32
_FRAMELESS: Final = (
    (b"content-security-policy", b"frame-ancestors 'none'"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


@final
class FormGuard:
    """Makes the marks of forms, and checks them. `names_in` are the sessions that cookies show."""

    __slots__ = ("_names_in", "_secret")

    def __init__(self, names_in: Callable[[bytes], str]) -> None:
        self._names_in = names_in
        self._secret = os.urandom(_SECRET_BYTES)

    def field(self, request: HttpRequest) -> str:
        """Return the hidden field of a form that is shown to this browser."""
        return f'<input type="hidden" name="{MARK}" value="{self._mark(request)}">'

    def read(self, request: HttpRequest, body: bytes) -> Mapping[str, str]:
        """Return the fields of a form; raise where it is not one of this browser's pages."""
        fields = fields_in(body)
        given = fields.get(MARK, "").encode("ascii", "replace")
        if not hmac.compare_digest(given, self._mark(request).encode()):
            remedy = "this page is of an earlier session: open it again, and repeat what you did"
            raise BadValue(MARK, "(not shown)", remedy)
        return fields

    def _mark(self, request: HttpRequest) -> str:
        names = self._names_in(request.header(b"cookie"))
        return hmac.new(self._secret, names.encode(), sha256).hexdigest()


def fields_in(body: bytes) -> Mapping[str, str]:
    """Return the fields of a form, the first of each name."""
    try:
        fields = parse_qs(
            body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX, errors="strict"
        )
    except (UnicodeDecodeError, ValueError):
        raise BadValue("body", body[:40], "send the fields of the page's form") from None
    return {name: values[0] for name, values in fields.items()}


def html(text: str, status: int = 200, *, cookies: Sequence[bytes] = ()) -> HttpReply:
    """Return the reply that is a page, or a part of one."""
    headers = _FRAMELESS + tuple((b"set-cookie", cookie) for cookie in cookies)
    return HttpReply(status, text.encode("utf-8", "replace"), HTML, headers)


def go_to(path: str, cookie: bytes = b"") -> HttpReply:
    """Return the reply that leads a browser to another page of ours."""
    headers = [(b"location", path.encode())]
    if cookie:
        headers.append((b"set-cookie", cookie))
    return HttpReply(303, b"", HTML, tuple(headers))


def own_path(text: str) -> str:
    """Return a path of ours to go on to; of anything else, the overview."""
    own = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if own and text.isascii() else "/"


def button(
    action: str, label: str, mark: str, fields: Mapping[str, str] | None = None, inside: str = ""
) -> str:
    """Return a form that is one button, with hidden fields, and what people fill in before it."""
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in (fields or {}).items()
    )
    return (
        f'<form class="act" method="post" action="{escape(action)}">{mark}{hidden}{inside}'
        f"<button>{escape(label)}</button></form>"
    )


def text_field(name: str, label: str, *, value: str = "", required: bool = True) -> str:
    """Return a labelled line of text."""
    need = " required" if required else ""
    return (
        f"<label>{escape(label)} "
        f'<input name="{escape(name)}" value="{escape(value)}" autocomplete="off"{need}></label>'
    )
