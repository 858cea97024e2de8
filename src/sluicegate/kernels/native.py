"""Native: the two words that mypyc understands and plain Python passes by.

`i64` is a machine integer where compiled and `int` where interpreted. Compiled it wraps around
without a word, so it may stand only behind a comparison that keeps its values small. `mypyc_attr`
marks a class for the compiler.

mypyc reads these names as those of `mypy_extensions`; at run time nothing needs that package. This
file itself is never compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["i64", "mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import i64, mypyc_attr
else:
    i64 = int

    def mypyc_attr(**_attributes: object):
        """Mark a class; the mark means nothing where there is no compiler."""
        return lambda cls: cls
