"""What the gate and the pages ask of other replicas; web/replicas.py has the way to them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..context import Context
from ..session import Session
from ..tool import ToolDef

if TYPE_CHECKING:
    from ..commands.board import ShownProgram


class OtherReplicas(Protocol):
    """The replicas that share this server's store."""

    def handle(self, ctx: Context, tool: ToolDef, arguments: dict[str, Any]) -> object:
        """Run a tool about programs where its program runs."""
        ...

    def programs(self, session: Session, principal: str | None) -> "list[ShownProgram]":
        """What runs there, of one principal or of all."""
        ...

    def stop(self, session: Session, principal: str | None, proc_id: str, check: Callable[[], None]) -> "ShownProgram":
        """End a program there."""
        ...
