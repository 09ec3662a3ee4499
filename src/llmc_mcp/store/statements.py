"""Statements on a connection to PostgreSQL, straight through libpq.

A change takes some twenty statements, most of them of a few microseconds: what a general client library does around
each (cursors, adapters, a wait that can be interrupted) costs several times that, and a round trip does, too. So a
statement is sent when somebody asks for what it or a later one gives back, together with all that wait before it. One
that is repeated is prepared, so that the server plans it once for each connection.
"""

import select
from collections.abc import Callable, Sequence
from typing import Any

from psycopg import OperationalError, errors, pq

_PREPARE_AT = 3  # uses of a statement on one connection
_MOST_PREPARED = 200  # of a connection; statements over lists of any length have many forms
_INT8, _FLOAT8, _BYTEA = 20, 701, 17
_OKAY = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


def _number(text: bytes) -> int | float:
    """Sums of integers come as `numeric`."""
    return int(text) if text.lstrip(b"-").isdigit() else float(text)


def _bytes(text: bytes) -> bytes:
    return pq.Escaping().unescape_bytea(text)


def _truth(text: bytes) -> bool:
    return text == b"t"


# By the number that a type has in every PostgreSQL; any other type comes as text.
_LOADERS: dict[int, Callable[[bytes], object]] = {
    16: _truth,
    17: _bytes,
    20: int,
    21: int,
    23: int,
    26: int,
    700: float,
    701: float,
    1700: _number,
}


class StatementResult:
    """What a statement gives back; it is sent at the latest when somebody asks for that."""

    def __init__(self, statements: "Statements") -> None:
        self._statements, self._next = statements, 0
        self.arrived: Any = None

    @property
    def rowcount(self) -> int:
        """How many rows it gave back or changed."""
        return self._result().command_tuples or 0

    def fetchone(self) -> Any:
        """The next row; None after the last one."""
        if self._next >= self._result().ntuples:
            return None
        self._next += 1
        return self._row(self._next - 1)

    def fetchall(self) -> list[Any]:
        """The rows that are left."""
        rows = [self._row(number) for number in range(self._next, self._result().ntuples)]
        self._next = self.arrived.ntuples
        return rows

    def _result(self) -> Any:
        if self.arrived is None:
            self._statements.flush()
        return self.arrived

    def _row(self, number: int) -> tuple[Any, ...]:
        result = self.arrived
        return tuple(_value(result.get_value(number, column), result.ftype(column)) for column in range(result.nfields))


def _value(data: bytes | None, kind: int) -> object:
    if data is None:
        return None
    loader = _LOADERS.get(kind)
    return loader(data) if loader is not None else data.decode()


class Statements:
    """Runs statements on one connection, and knows which are prepared there."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._waiting: list[tuple[StatementResult, bytes, list[bytes | None], list[int]]] = []
        self._uses: dict[tuple[bytes, tuple[int, ...]], int] = {}
        self._prepared: dict[tuple[bytes, tuple[int, ...]], bytes] = {}

    def run(self, statements: bytes) -> None:
        """Run statements without parameters, in one round trip."""
        self.flush()
        _checked(self._connection.exec_(statements))

    def execute(self, statement: bytes, parameters: Sequence[object]) -> StatementResult:
        """Run a statement, now or with a later one."""
        values: list[bytes | None] = []
        kinds: list[int] = []
        for value in parameters:
            data, kind = _dumped(value)
            values.append(data)
            kinds.append(kind)
        self._waiting.append((result := StatementResult(self), statement, values, kinds))
        return result

    def forget(self) -> None:
        """Don't send what waits: the transaction is over."""
        self._waiting.clear()

    def flush(self) -> None:
        """Send what waits, in one round trip; the first error is raised."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        calls = [
            (self._name(statement, tuple(kinds)), statement, values, kinds) for _, statement, values, kinds in waiting
        ]
        if len(calls) == 1:
            (name, statement, values, kinds), connection = calls[0], self._connection
            waiting[0][0].arrived = _checked(
                connection.exec_prepared(name, values, _formats(kinds))
                if name
                else connection.exec_params(statement, values, kinds, _formats(kinds))
            )
            return
        for (result, *_), arrived in zip(waiting, self._pipeline(calls), strict=True):
            result.arrived = _checked(arrived)

    def _pipeline(self, calls: Sequence[tuple[bytes, bytes, list[bytes | None], list[int]]]) -> list[Any]:
        connection = self._connection
        connection.enter_pipeline_mode()
        for name, statement, values, kinds in calls:
            if name:
                connection.send_query_prepared(name, values, _formats(kinds))
            else:
                connection.send_query_params(statement, values, kinds, _formats(kinds))
        connection.pipeline_sync()
        found: list[Any] = []
        while len(found) < len(calls):
            if (result := self._arrived()) is not None:  # None comes after each
                found.append(result)
        while (result := self._arrived()) is None or result.status != pq.ExecStatus.PIPELINE_SYNC:
            pass
        connection.exit_pipeline_mode()
        return found

    def _arrived(self) -> Any:
        """The next result, once it is there; other threads run meanwhile."""
        connection = self._connection
        poll = select.poll()
        while unsent := connection.flush():
            poll.register(connection.socket, select.POLLIN | select.POLLOUT)
            poll.poll()
            connection.consume_input()
        del unsent
        poll.register(connection.socket, select.POLLIN)
        while connection.is_busy():
            poll.poll()
            connection.consume_input()
        return connection.get_result()

    def _name(self, statement: bytes, kinds: tuple[int, ...]) -> bytes:
        """The name of the prepared statement, once it is worth one; empty before."""
        form = (statement, kinds)
        if (name := self._prepared.get(form)) is not None:
            return name
        uses = self._uses[form] = self._uses.get(form, 0) + 1
        if uses < _PREPARE_AT or len(self._prepared) >= _MOST_PREPARED:
            if len(self._uses) > 4 * _MOST_PREPARED:
                self._uses.clear()
            return b""
        name = b"llmc_%d" % len(self._prepared)
        _checked(self._connection.prepare(name, statement, list(kinds)))
        self._prepared[form] = name
        return name


def _formats(kinds: Sequence[int]) -> list[int]:
    return [1 if kind == _BYTEA else 0 for kind in kinds]


def _dumped(value: object) -> tuple[bytes | None, int]:
    """A parameter as the server reads it, and its type; 0 lets the server find out."""
    if isinstance(value, str):
        return value.encode(), 0
    if value is None:
        return None, 0
    if isinstance(value, int):
        return str(int(value)).encode(), _INT8
    if isinstance(value, float):
        return repr(value).encode(), _FLOAT8
    if isinstance(value, bytes):
        return value, _BYTEA
    raise TypeError(f"no parameter of a statement: {type(value).__name__}")


def _checked(result: Any) -> Any:
    if result.status in _OKAY:
        return result
    if result.status == pq.ExecStatus.PIPELINE_ABORTED:
        raise OperationalError("an earlier statement failed")
    if result.error_field(pq.DiagnosticField.SQLSTATE) is None:  # the connection is gone
        raise OperationalError(result.get_error_message("utf-8").strip() or "the connection is gone")
    raise errors.error_from_result(result, encoding="utf-8")
