"""The files that the best candidates for a task import.

An issue tells what its reporter saw: the command that failed, the class that was used. What has to be edited is often
one step further, in a file that these import and whose words the issue never mentions.
"""

import math
from collections.abc import Iterable, Mapping

from ..parse.imports import names_of

FIRST = 3  # files that keep their places: what the words say first is right more often than any neighbour
_LEAD = 0.01  # of the last of them, at least
_IMPORTERS = 10  # best files whose imports count


def links(paths: Mapping[int, str], imports: Mapping[int, Iterable[int]]) -> dict[int, list[int]]:
    """For each file, those of the files that it imports."""
    named: dict[int, list[int]] = {}
    for file, path in paths.items():
        for name in names_of(path):
            named.setdefault(name, []).append(file)
    made: dict[int, list[int]] = {}
    for file, hashes in imports.items():
        found = (target for name in named.keys() & set(hashes) for target in named[name])
        made[file] = [target for target in dict.fromkeys(found) if target != file]
    return made


def imported(scores: Mapping[int, float], linked: Mapping[int, Iterable[int]]) -> dict[int, float]:
    """How much the best files import each file; one that everything imports says little."""
    importers: dict[int, int] = {}
    for targets in linked.values():
        for target in targets:
            importers[target] = importers.get(target, 0) + 1
    best = sorted(scores, key=lambda file: (-scores[file], file))[:_IMPORTERS]
    odds = [math.exp(scores[file] - scores[best[0]]) for file in best]
    found: dict[int, float] = {}
    for file, odd in zip(best, odds, strict=True):
        for target in linked.get(file, ()):
            found[target] = found.get(target, 0.0) + odd / sum(odds) / math.sqrt(importers[target])
    return found


def raised(scores: Mapping[int, float], found: Mapping[int, float], weight: float) -> dict[int, float]:
    """The scores, with what `imported` adds to all but the first ones, which stay in front."""
    order = sorted(scores, key=lambda file: (-scores[file], file))
    made = {file: scores[file] + weight * found.get(file, 0.0) for file in order[FIRST:]}
    behind = max(made.values(), default=-math.inf) - min((scores[file] for file in order[:FIRST]), default=0.0)
    for file in order[:FIRST]:
        made[file] = scores[file] + max(behind + _LEAD, 0.0)
    return made
