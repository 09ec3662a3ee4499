"""Repositories with questions and the files that answer them: `annotations/NAME.json`, `repos.json`, checkouts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast


class Query(NamedTuple):
    """A question and the files that answer it, relevant and secondary ones alike."""

    text: str
    category: str
    targets: tuple[str, ...]


class Repository(NamedTuple):
    """An annotated repository."""

    name: str
    root: Path
    queries: list[Query]


def repositories(annotations: Path, checkouts: Path) -> Iterator[Repository]:
    """Those that are annotated and checked out."""
    listed: list[dict[str, str]] = json.loads((annotations.parent / "repos.json").read_text())
    for entry in listed:
        below = entry.get("benchmark_root", "")
        root = checkouts / entry["name"] / below
        questions = annotations / f"{entry['name']}.json"
        if root.is_dir() and questions.exists():
            queries = [_query(one, root, below) for one in json.loads(questions.read_text())]
            yield Repository(entry["name"], root, queries)


def _query(one: dict[str, Any], root: Path, below: str) -> Query:
    """Targets are told from the top of the repository, or from the folder that is searched."""
    targets: dict[str, None] = {}
    for target in [*one["relevant"], *one["secondary"]]:
        path = str(cast(dict[str, Any], target)["path"] if isinstance(target, dict) else target)
        inner = path.removeprefix(f"{below}/") if below else path
        targets[path if (root / path).exists() else inner] = None
    return Query(one["query"], one["category"], tuple(targets))
