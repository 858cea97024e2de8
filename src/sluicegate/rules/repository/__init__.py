"""Repository: a rulebook as a git repository, through dulwich; `repository.py` is the way in.

Only this package knows git. Nothing here knows what a rule is, what is live, or who may do what.
"""

from sluicegate.contracts.errors import MissingPackage

try:
    import dulwich  # noqa: F401 - it is only asked for here, so that what lacks is named at once
except ModuleNotFoundError as error:
    if error.name != "dulwich":
        raise
    raise MissingPackage("dulwich", "rulebook") from None
