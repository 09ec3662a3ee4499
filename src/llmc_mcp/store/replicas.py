"""The replicas of a team's server: which live, where they are reached, and which of them runs a program.

A replica writes a heartbeat to its row, by the store's clock. A program that outlives its call has a row that names its
replica, so that a call that arrives anywhere finds it. A replica that has been silent for `OVER_S` counts as ended, and
with it its programs. Its rows are kept for `KEPT_S`, so that whoever asks for a program hears what became of it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from .base import Store
from .schema import insert_or_replace

BEAT_S = 2.0
OVER_S = 10.0
KEPT_S = 3_600.0

_FIELDS = "r.id, r.url, r.key, r.seen_at"


class ReplicaRow(NamedTuple):
    """A replica as its row says; `silent_s`: how long ago its last heartbeat was."""

    id: str
    url: str
    key: str
    silent_s: float

    @property
    def is_over(self) -> bool:
        """Whether it counts as ended."""
        return self.silent_s > OVER_S


class OwnedProgram(NamedTuple):
    """A program and its owner."""

    proc_id: str
    principal: str
    session_id: str


class ReplicaTable:
    """The rows of all replicas, from the side of one."""

    def __init__(self, store: Store, own_id: str) -> None:
        self._store, self._id = store, own_id

    # --- this replica ----------------------------------------------------------------------------

    def beat(self, url: str, key: str, programs: Sequence[OwnedProgram]) -> float:
        """Say that this replica lives, and which programs it has; returns the store's time.

        Others may have taken it for ended meanwhile, and removed its rows.
        """
        now, own = self._store.now(), {program.proc_id: program for program in programs}
        self._write(insert_or_replace("replicas", ("id", "url", "key", "seen_at")), self._id, url, key, now)
        found = {str(one) for (one,) in self._store.query("SELECT proc_id FROM owners WHERE replica=?", (self._id,))}
        for proc_id in found - own.keys():
            self._write("DELETE FROM owners WHERE proc_id=? AND replica=?", proc_id, self._id)
        for proc_id in own.keys() - found:
            self.own(own[proc_id])
        return now

    def own(self, program: OwnedProgram) -> None:
        """Have other replicas find a program here."""
        row = (program.proc_id, self._id, program.principal, program.session_id)
        self._write(insert_or_replace("owners", ("proc_id", "replica", "principal", "session_id")), *row)

    def leave(self) -> None:
        """This replica ends, and its programs with it."""
        self._remove(self._id)

    def _write(self, sql: str, *parameters: object) -> None:
        """A row that is one replica's alone: nobody has to wait for who changes files."""
        self._store.execute_alone(sql, parameters)

    # --- the others ------------------------------------------------------------------------------

    def runs(self, program: OwnedProgram) -> ReplicaRow | None:
        """The other replica that runs a program of this very owner."""
        found = self._store.query(
            f"SELECT {_FIELDS} FROM owners o JOIN replicas r ON r.id=o.replica"  # noqa: S608 - own names
            " WHERE o.proc_id=? AND o.principal=? AND o.session_id=? AND r.id<>?",
            (*program, self._id),
        )
        return self._rows(found)[0] if found else None

    def runs_for_person(self, proc_id: str, principal: str | None) -> tuple[ReplicaRow, OwnedProgram] | None:
        """The other replica that runs a program, of one principal or of anybody, and whose program it is."""
        found = self._store.query(
            f"SELECT {_FIELDS}, o.principal, o.session_id FROM owners o JOIN replicas r ON r.id=o.replica"  # noqa: S608 - own names
            " WHERE o.proc_id=?1 AND (?2 IS NULL OR o.principal=?2) AND r.id<>?3",
            (proc_id, principal, self._id),
        )
        if not found:
            return None
        return self._rows([found[0][:4]])[0], OwnedProgram(proc_id, str(found[0][4]), str(found[0][5]))

    def with_programs(self, principal: str | None, session_id: str | None = None) -> list[ReplicaRow]:
        """The other replicas that run programs of a session, of a principal, or of anybody."""
        found = self._store.query(
            f"SELECT DISTINCT {_FIELDS} FROM owners o JOIN replicas r ON r.id=o.replica"  # noqa: S608 - own names
            " WHERE (?1 IS NULL OR o.principal=?1) AND (?2 IS NULL OR o.session_id=?2) AND r.id<>?3 ORDER BY 1",
            (principal, session_id, self._id),
        )
        return self._rows(found)

    def find(self, replica_id: str) -> ReplicaRow | None:
        """A replica, if it still has a row."""
        found = self._store.query(f"SELECT {_FIELDS} FROM replicas r WHERE r.id=?", (replica_id,))  # noqa: S608 - own names
        return self._rows(found)[0] if found else None

    def forget(self, proc_id: str) -> None:
        """A program is gone, and so is the replica that would say so."""
        self._write("DELETE FROM owners WHERE proc_id=?", proc_id)

    def forget_ended(self) -> None:
        """Remove what replicas that ended long ago left behind."""
        ended = self._store.query("SELECT id FROM replicas WHERE seen_at<?", (self._store.now() - KEPT_S,))
        for (one,) in ended:
            self._remove(str(one))

    def _remove(self, replica_id: str) -> None:
        self._write("DELETE FROM owners WHERE replica=?", replica_id)
        self._write("DELETE FROM replicas WHERE id=?", replica_id)

    def _rows(self, found: Sequence[tuple[object, ...]]) -> list[ReplicaRow]:
        now = self._store.now() if found else 0.0
        return [ReplicaRow(str(one), str(url), str(key), now - float(str(seen))) for one, url, key, seen in found]
