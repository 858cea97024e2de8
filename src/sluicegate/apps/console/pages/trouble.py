"""Trouble: what a person reads where a program gets a problem document. Pure.

Each page says what is wrong, names field and value where there is one, and ends with what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final
from urllib.parse import quote

from sluicegate.apps.console.pages import frame
from sluicegate.command_line.page import cell, escape_name, escape_words, quiet, row, table

_TITLES: Final[Mapping[int, str]] = {
    400: "Something in this request is not right",
    401: "You are not logged in",
    403: "You may not do this",
    404: "There is no such page",
    405: "This address does something else",
    409: "Somebody was faster",
    413: "This is too long",
    500: "The console failed",
    503: "Not just now",
    504: "This took too long",
}
_REMEDIES: Final[Mapping[int, str]] = {
    401: '<a href="/login">Log in</a>, and do it again.',
    403: "Open the page here, at the console's own address, and do it from there.",
    405: "Use one of the pages above and the buttons that they have.",
    413: "Send long rules with <code>sluicegate rules propose</code>, or start the console with a "
    "larger <code>--message-bytes-max</code>.",
    500: "Try again. If that does not help, the console's log has the reason, under "
    "<code>a request was answered with 500</code>.",
    503: "Try again in a moment.",
    504: "Try again in a moment; the page Nodes shows who does not answer.",
}


def trouble(
    problem: Mapping[str, object],
    path: str,
    *,
    method: str = "GET",
    who: str = "",
    optional: Sequence[str] = (),
) -> str:
    """Return the page of a problem document that was the answer for `path`."""
    status = problem.get("status")
    status = status if isinstance(status, int) else 500
    if status == 404 and method == "GET":
        said = _missing(path, optional)
    elif "field" in problem:
        said = _field(problem)
    else:
        said = f"<p>{escape_words(_capital(str(problem.get('detail', ''))))}</p>"
        remedy = _REMEDIES.get(status, "")
        if status == 403 and "grant" in problem:
            remedy = (
                f"Whoever keeps the console's access file (<code>--access</code>) can give "
                f"{escape_name(str(problem.get('who', '')))} the grant "
                f"<code>{escape_name(str(problem['grant']))}</code>."
            )
        said += f"<p>{remedy}</p>" if remedy else ""
    if method != "GET":
        said += quiet("Nothing was changed. Go back a page: what you filled in is still there.")
    elif status == 400:
        said += f'<p><a href="{escape(quote(path))}">Open this page without it</a></p>'
    title = _TITLES.get(status, str(problem.get("title", "")))
    return frame.render("", {"trouble": said}, who=who, live=False, title=title, optional=optional)


def _field(problem: Mapping[str, object]) -> str:
    rows = [
        row(cell(name), cell(escape_name(str(problem.get(key, "")) or "(empty)"), "name"))
        for name, key in (("Field", "field"), ("Value", "value"))
    ]
    remedy = escape_words(_capital(str(problem.get("remedy", ""))))
    return table((), (), [*rows, row(cell("What to do"), cell(remedy))])


def _missing(path: str, optional: Sequence[str]) -> str:
    page = path.strip("/").partition("/")[0]
    if page in frame.OPTIONAL and page not in optional:
        words = (
            f"The page {frame.PAGES[page]} is off here. <code>sluicegate console "
            f"{frame.OPTIONAL[page]}</code> switches it on."
        )
    else:
        words = "Go on with one of the pages above, and look whether the address has a slip in it."
    return f"<p>There is no page {escape_words(path)}. {words}</p>"


def _capital(words: str) -> str:
    """The same as a sentence."""
    text = words[:1].upper() + words[1:]
    return text if text.endswith((".", "?", "!")) or not text else f"{text}."
