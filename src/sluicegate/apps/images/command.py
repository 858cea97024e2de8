"""The command `sluicegate images`: its verbs, their flags, and who runs them.

Light to import: what serves, downloads or processes is imported when a verb is run.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial
from typing import Final

from sluicegate.apps.images.settings import SERVICE, ImagesSettings
from sluicegate.command_line.service_client import add_address_flags
from sluicegate.command_line.verbs import add_verb
from sluicegate.service.command import add_service_flags, reader_of, settings_to_serve
from sluicegate.service.settings import add_flags

EXAMPLES: Final = """\
examples:
  sluicegate images serve                              HTTP on 127.0.0.1:7060, files beside you
  sluicegate images fetch https://example.com/a.jpg w=400,format=webp --out a.webp
  sluicegate images stats                              what a running service did and saved
  sluicegate images report --html report.html          what is stored, by owner
  sluicegate images import catalogue.csv --spec w=400  every image of a catalogue, with progress
  sluicegate images gc --check                         read and verify every blob
  sluicegate images serve --help                       the flags of a verb, with examples
"""

SERVE_EXAMPLES: Final = """\
examples:
  sluicegate images serve --listen 127.0.0.1:7060 --kv lmdb:DIR --blobs files:DIR
  sluicegate images serve --kv redis+cluster://10.0.0.1:6379 --blobs s3://bucket/images
  sluicegate images serve --sign-key "$KEY" --origin-hosts .cdn.example.com
  sluicegate images serve --origin-networks 10.1.0.0/16       an origin that is not on the internet

then, from another terminal:
  curl http://127.0.0.1:7060/img/w=400,format=webp/https%3A%2F%2Fexample.com%2Fa.jpg > a.webp
  curl --data-binary @a.jpg -H 'content-type: image/jpeg' http://127.0.0.1:7060/v1/images
  open http://127.0.0.1:7060/gallery

Variables are named SLUICEGATE_IMAGES_ and the flag, as SLUICEGATE_IMAGES_KV. SIGHUP reads callers
and certificates again; SIGTERM ends it after --leave-s, when work in flight is done.
"""

FETCH_EXAMPLES: Final = """\
examples:
  sluicegate images fetch https://example.com/a.jpg w=400 --out a.jpg
  sluicegate images fetch https://example.com/a.jpg w=400,format=webp > a.webp

It works on the stores themselves, as the service would; what it makes, a service on the same stores
has.
"""

STATS_EXAMPLES: Final = """\
examples:
  sluicegate images stats
  sluicegate images stats --at http://images.internal:7060 --token "$TOKEN" --json
"""

REPORT_EXAMPLES: Final = """\
examples:
  sluicegate images report
  sluicegate images report --html report.html
  sluicegate images report --alike         originals that look nearly the same, too
"""

GC_EXAMPLES: Final = """\
examples:
  sluicegate images gc                     one run; a running service does this by itself
  sluicegate images gc --check             verify every blob, and remove nothing

What nothing refers to is condemned by one run and removed by a later one, begun
--collect-grace-s after. It is safe beside running services.
exit code: 0 it is done, and all is as it should be; 1 a check found errors; 2 asked wrongly
"""

IMPORT_EXAMPLES: Final = """\
examples:
  sluicegate images import catalogue.csv --spec w=400,format=webp --spec w=80,h=80,fit=cover
  sluicegate images import catalogue.csv --spec w=400 --url-column image --failures failures.csv

The file has a column of URLs, named in its first row. What is there already costs nothing, so an
import that was interrupted is run again.
exit code: 0 every image is there; 1 some failed; 2 asked wrongly; 130 interrupted
"""


REMOVE_EXAMPLES: Final = """\
examples:
  sluicegate images remove --url https://example.com/a.jpg --block --reason "notice 17"
  sluicegate images remove --id SHA256             every URL that has this original
  sluicegate images remove --owner shop-7          all images of an owner
  sluicegate images remove --owner shop-7 --purge  make the variants again, keep the originals
  sluicegate images remove --url https://example.com/a.jpg --unblock

It works on the stores. Running services notice within a second. Collection deletes the bytes.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs and their flags."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    verb = partial(add_verb, verbs)
    add_service_flags(verb("serve", "serve images over HTTP", SERVE_EXAMPLES), ImagesSettings)
    fetch = verb("fetch", "make one image", FETCH_EXAMPLES)
    fetch.add_argument("url", metavar="URL", help="of the image, or the id of an upload")
    fetch.add_argument("spec", metavar="SPEC", help="what to make of it, as w=400,format=webp")
    fetch.add_argument("--out", metavar="FILE", default="", help="where to write it, not stdout")
    stats = verb("stats", "show what a running service did and saved", STATS_EXAMPLES)
    add_address_flags(stats, SERVICE, "a token with the grant audit", "--at")
    stats.add_argument("--json", action="store_true", help="print JSON")
    report = verb("report", "show stored images and savings, by owner", REPORT_EXAMPLES)
    report.add_argument("--html", metavar="FILE", default="", help="write a page with a picture")
    report.add_argument(
        "--alike", action="store_true", help="compare all originals, and show those that look alike"
    )
    collect = verb("gc", "remove what nothing refers to, or check all that does", GC_EXAMPLES)
    collect.add_argument("--check", action="store_true", help="read and verify every blob")
    load = verb("import", "fetch and process the images of a catalogue", IMPORT_EXAMPLES)
    load.add_argument("file", metavar="CSV", help="a file with a column of URLs")
    load.add_argument("--spec", action="append", metavar="SPEC", help="a variant; several may be")
    load.add_argument("--url-column", default="url", metavar="NAME", help="(%(default)s)")
    load.add_argument("--owner-column", default="", metavar="NAME", help="a column of owners")
    load.add_argument("--at-once", type=int, default=16, metavar="N", help="(%(default)s)")
    load.add_argument("--failures", default="", metavar="FILE", help="write what failed, as CSV")
    remove = verb("remove", "remove images, and keep them away", REMOVE_EXAMPLES)
    what = remove.add_mutually_exclusive_group(required=True)
    what.add_argument("--url", default="", metavar="URL", help="the image at a URL")
    what.add_argument("--id", default="", metavar="SHA256", help="an original by its hash")
    what.add_argument("--owner", default="", metavar="NAME", help="all images of an owner")
    remove.add_argument("--block", action="store_true", help="refuse the URL or hash from now on")
    remove.add_argument("--unblock", action="store_true", help="let the URL or hash in again")
    remove.add_argument("--purge", action="store_true", help="remove variants only")
    remove.add_argument("--reason", default="", metavar="TEXT", help="why, for the audit")
    for one in (fetch, report, collect, load, remove):
        add_flags(one, ImagesSettings)


def run(arguments: Namespace) -> int:
    """Serve until a signal ends it, or run the verb."""
    if arguments.verb != "serve":
        from sluicegate.apps.images.verbs import VERBS  # noqa: PLC0415 - brings the stores

        return VERBS[arguments.verb](arguments)
    settings = settings_to_serve(ImagesSettings, arguments)
    if settings is None:
        return 0
    # They bring the doors, the stores and the processor.
    from sluicegate.apps.images.app import ImagesApp  # noqa: PLC0415
    from sluicegate.service.host import serve  # noqa: PLC0415

    return serve("images", settings, ImagesApp, read=reader_of(ImagesSettings, arguments))
