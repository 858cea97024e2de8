"""`python -m tests.site.build FOLDER`: the documentation as static HTML, its links checked.

Every page of the tree is a page of the site, and so is every file that a page links to; a link to
what is not there, and a page that the navigation does not name, is an error. Nothing is asked of
the network, and the pages open from a disk as from a server. Why no generator does it is in
docs/decisions/0031-the-site-is-built-by-the-tests.md.
"""

from __future__ import annotations

import json
import posixpath
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tests.site import frame, reference, sections
from tests.site.page import Part, SitePage, parse, source

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = ("clients", "docs", "deploy", "examples")
PICTURES: Final = (".png", ".svg")
TEXT_CHARS_MAX: Final = 4_000  # of a part, in the search


@dataclass
class Site:
    """What is built, and what is wrong with it."""

    pages: dict[str, SitePage] = field(default_factory=dict)  # by their path in the tree
    sources: set[str] = field(default_factory=set)
    pictures: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    anchors: list[tuple[str, str, str]] = field(default_factory=list)  # page, page, anchor


def url_of(path: str) -> str:
    """Where a page of the tree is on the site."""
    if path == "README.md":
        return "index.html"
    return path.removeprefix("docs/").removesuffix(".md") + ".html"


def source_url(path: str) -> str:
    """Where a file of the tree is."""
    return f"source/{path}.html"


def page_paths(root: Path) -> list[str]:
    """All Markdown files that are documentation."""
    found = [*root.glob("*.md")]
    for folder in FOLDERS:
        found += (root / folder).rglob("*.md")
    paths = (path.relative_to(root).as_posix() for path in found)
    return sorted(path for path in paths if "/node_modules/" not in path)


def read_site(root: Path) -> Site:
    """Read and check all pages."""
    site = Site()
    paths = page_paths(root)
    for path in paths:
        text = (root / path).read_text(encoding="utf-8")
        site.pages[path] = parse(text, lambda to, path=path: _link(site, root, path, to))  # type: ignore[misc]
    for at, to, anchor in site.anchors:
        if anchor not in site.pages[to].anchors:
            site.errors.append(f"{at}: there is no heading #{anchor} in {to}")
    site.errors += [f"{path}: no section names it (tests/site/sections.py)" for path in
                    sections.order(paths)[1]]  # fmt: skip
    return site


def _link(site: Site, root: Path, at: str, to: str) -> str:
    """What a link of the page `at` is on the site; noted where it must be checked."""
    parts = urlsplit(to)
    if parts.scheme or parts.netloc:
        return to
    here = url_of(at)
    path = unquote(parts.path)
    target = posixpath.normpath(posixpath.join(posixpath.dirname(at), path)) if path else at
    file = root / target
    if target.startswith("..") or not file.is_file():
        site.errors.append(f"{at}: there is no file {to}")
        return to
    if file.suffix == ".md":
        if parts.fragment:
            site.anchors.append((at, target, parts.fragment))
        found = url_of(target)
    elif file.suffix in PICTURES:
        site.pictures.add(target)
        found = target.removeprefix("docs/")
    else:
        site.sources.add(target)
        found = source_url(target)
    relative = posixpath.relpath(found, posixpath.dirname(here) or ".")
    return relative + (f"#{parts.fragment}" if parts.fragment else "")


def write_site(site: Site, root: Path, out: Path) -> None:
    """Write all of it; what was there is replaced."""
    if out.exists():
        shutil.rmtree(out)
    ordered, _ = sections.order([*site.pages])
    nav = [
        (name, [frame.NavEntry(url_of(path), _name(site.pages[path])) for path in paths])
        for name, paths in ordered
    ]
    made = reference.pages(root)
    nav.insert(-1, ("Reference", [frame.NavEntry(page.url, page.title) for page in made]))

    def write(url: str, title: str, body: str) -> None:
        file = out / url
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(frame.render(title, body, url, nav), encoding="utf-8")

    index: list[tuple[str, str, str, str]] = []
    for path, page in site.pages.items():
        write(url_of(path), page.title, page.html)
        index += [_entry(url_of(path), page.title, part) for part in page.parts if part.text]
    for one in made:
        write(one.url, one.title, one.html)
        index += [_entry(one.url, one.title, part) for part in one.parts]
    for path in site.sources:
        write(source_url(path), path, source(path, (root / path).read_text(encoding="utf-8")))
    for path in site.pictures:
        picture = out / path.removeprefix("docs/")
        picture.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, picture)
    (out / "style.css").write_text(frame.STYLE, encoding="utf-8")
    (out / "search.js").write_text(frame.SCRIPT, encoding="utf-8")
    (out / "index.js").write_text(f"window.SEARCH = {json.dumps(index)};\n", encoding="utf-8")


def _name(page: SitePage) -> str:
    return page.title.partition(": `")[0]


def _entry(url: str, title: str, part: Part) -> tuple[str, str, str, str]:
    words = " ".join(" ".join(part.text).split())
    at = f"{url}#{part.anchor}" if part.anchor else url
    return at, title, part.heading, words[:TEXT_CHARS_MAX]


def main(out: Path) -> int:
    """Build it; 1 if something is wrong."""
    site = read_site(ROOT)
    for error in site.errors:
        sys.stderr.write(f"{error}\n")
    if site.errors:
        return 1
    write_site(site, ROOT, out)
    counts = f"{len(site.pages)} pages and {len(site.sources)} files of the source"
    sys.stdout.write(f"{counts}: {out / 'index.html'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
