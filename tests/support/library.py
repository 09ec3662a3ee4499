"""A code index on a folder, in this process, with everything real around it."""

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.files import names
from llmc_mcp.rag.build.messages import News
from llmc_mcp.rag.query.search import CodeQuery, CodeSearch, QueryCaller, Scope, SearchResult, Stats
from llmc_mcp.session import Session

from .client import PATIENCE
from .processes import parent_of, processes_with
from .talk import alive


def never() -> None:
    """A cancellation check that never cancels."""


class Library:
    """The index of one root, as a caller sees it."""

    def __init__(self, app: App, root: Path) -> None:
        self.app, self.root = app, root

    @property
    def rag(self) -> CodeSearch:
        return self.app.rag

    def caller(
        self, check: Callable[[], None] = never, seconds: float = PATIENCE, patience: float = PATIENCE
    ) -> QueryCaller:
        session = Session(principal="uid:0", session_id="test", agent_id="tester")
        return QueryCaller(session, time.monotonic() + seconds, check, patience=patience)

    def ask(
        self, text: str, scope: Scope = "repo", limit: int = 5, budget: int = 2_000, path_glob: str | None = None
    ) -> SearchResult:
        return self.rag.search(CodeQuery(text, scope, limit, budget, path_glob), self.caller())

    def found(self, text: str, scope: Scope = "both", limit: int = 5, path_glob: str | None = None) -> list[str]:
        """Paths of the files that a query finds."""
        return [names.show(hit.path) for hit in self.ask(text, scope, limit, path_glob=path_glob).hits]

    def refresh(self, *, full: bool = False) -> News:
        (news,) = self.rag.refresh(None, full, self.caller())
        assert news is not None
        return news

    def stats(self) -> Stats:
        (stats,) = self.rag.stats()
        return stats

    @property
    def home(self) -> Path:
        """The folder of the index."""
        (folder,) = [
            path
            for path in Path(self.app.data_dir, "index").iterdir()
            if (path / "root").read_text().strip() == str(self.root)
        ]
        return folder

    @property
    def build(self) -> Path:
        """The current build."""
        return self.home / os.readlink(self.home / "current")


@contextmanager
def library_on(root: Path, data: Path, config: Config | None = None) -> Generator[Library]:
    """A server's engines on a folder; its children end with the block. Grammars are unpacked once for all tests."""
    grammars = Path(os.environ["LLMC_DATA_DIR"], "grammars")
    grammars.mkdir(parents=True, exist_ok=True)
    data.mkdir(exist_ok=True)
    if not (data / "grammars").is_symlink():
        (data / "grammars").symlink_to(grammars)
    app = App(config or Config(), [str(root)], str(data))
    try:
        yield Library(app, root)
    finally:
        app.close()


def keepers(root: Path) -> list[int]:
    """The processes that keep the index of a root, without the parsers that they have forked."""
    found: set[int] = set()
    for pid in processes_with("rag.build.keeper import"):
        try:
            if os.path.samefile(f"/proc/{pid}/cwd", root) and alive(pid):
                found.add(pid)
        except OSError:
            continue
    return sorted(pid for pid in found if parent_of(pid) not in found)
