"""What the binding of a language collects from a file's tree, before names are looked up."""

from .scopes import Bound, Expression, Value


class Facts:
    """Bindings, imports, and the pieces of a file that are not to be read as code."""

    def __init__(self) -> None:
        self.bounds: list[Bound] = []
        self.imports: list[tuple[str, str, int]] = []  # a name, the path of what it is taken from, where
        self.blanks: list[tuple[int, int]] = []
        self.inherited: set[int] = set()  # ends of expressions that are bases of classes

    def bind(self, at: int, name: str, value: Value) -> None:
        """A name gets a value in the scope that it stands in."""
        self.bounds.append(Bound(at, name, value))

    def imported(self, name: str, source: str, at: int) -> None:
        """The file takes a name from somewhere."""
        self.imports.append((name, source, at))

    def wanted(self) -> set[int]:
        """Ends of the expressions that are values of something."""
        return {one.value.end for one in self.bounds if isinstance(one.value, Expression)}
