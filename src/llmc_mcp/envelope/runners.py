"""cargo, go, npm and their kin: test runs are one family, builds and installations another."""

from . import scripts, tests
from .family import FamilyPlan


def plan(argv: list[str]) -> FamilyPlan | None:
    """A plan for what the subcommand does."""
    run = tests.plan(argv)
    if run is not None:
        return run._replace(kind="tests")
    build = scripts.plan(argv)
    return build._replace(kind="scripts") if build is not None else None
