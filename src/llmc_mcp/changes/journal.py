"""The journal: a write-ahead record of every change and of what the files held before it (pre-images).

Rows are in the store. Pre-images are stored once per content, compressed: small ones in the store itself, so that one
sync makes intent and content durable together, larger ones as files beside it. When the journal outgrows its limit,
the oldest changes lose their pre-images, and undoing them says so.
"""

import hashlib
import os
import time
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import msgspec

from ..config.schema import Config
from ..errors import FeatureUnavailable, NotFound, Stale
from ..session import Session
from ..store.base import Connection, Store
from ..store.leases import own_process
from ..store.root_keys import paths_of
from ..store.root_sets import VISIBLE, RootSet, visible_to
from ..store.row_paths import pack, unpack
from ..store.schema import insert_into, insert_missing, insert_or_replace
from .records import TRASH, MoveRecord, PutRecord, Record, is_lost, renamed, renamed_entry

_FOLDER = "journal"  # in the data directory
_INLINE_BYTES = 128 << 10  # compressed; a larger image is cheaper as a file than through the WAL
_LEVEL = 1
_LEFTOVER_S = 3600
_MOST_ROWS = 20_000  # older changes are forgotten altogether
_FORGET_EVERY = 100

_decode = msgspec.json.Decoder(list[Record]).decode


class JournalLimits(NamedTuple):
    """How much the journal and the trash may hold."""

    change_bytes: int
    total_bytes: int
    trash_bytes: int


def limits_from(config: Config) -> JournalLimits:
    """The limits that the configuration sets."""
    limits = config.limits
    return JournalLimits(limits.journal_max_bytes, limits.journal_max_total_bytes, limits.trash_max_total_bytes)


class Change(NamedTuple):
    """A row of the journal."""

    seq: int
    id: str
    principal: str
    session_id: str
    agent_id: str
    at: float
    action: str
    state: str
    process: str
    roots: list[str]
    effects: list[Record]
    undoes: str | None
    undone_by: str | None
    dropped: bool
    about: str = ""  # the line of a command


_FIELDS = ", ".join(Change._fields)
_ROOTS, _EFFECTS = Change._fields.index("roots"), Change._fields.index("effects")
_INSERT_CHANGE = f"""{
    insert_into(
        "changes",
        (
            *("id", "principal", "session_id", "agent_id", "at", "action", "state", "process"),
            *("roots", "effects", "undoes", "about"),
        ),
    )
} RETURNING seq"""
_MOVED = ", ".join(name for name in Change._fields if name not in ("seq", "id"))
_RENUMBER = f"INSERT INTO changes (id, {_MOVED}) SELECT ?, {_MOVED} FROM changes WHERE seq=? RETURNING seq"  # noqa: S608 - own names
_INSERT_IMAGE = insert_missing("images", ("sha256", "stored", "data"))
_INSERT_CHANGE_IMAGE = (
    "INSERT INTO change_images (seq, sha256) SELECT seq, ? FROM changes WHERE id=? ON CONFLICT DO NOTHING"
)
_INSERT_TRASH = insert_or_replace("trash", ("entry", "change_id", "path", "kind", "bytes", "at"))


_INSERT_LEFTOVER = insert_or_replace("leftovers", ("path", "roots", "process"))


class Leftover(NamedTuple):
    """Something that a change that is done has still to remove; `roots` are those of the change.

    `process` is the one that does it, or empty.
    """

    path: str
    roots: list[str]
    process: str


class PreImage(NamedTuple):
    """Content from before a change, ready to be journaled; `packed` is None when it is in a file already.

    Its name is its SHA-256, or that of a pack.
    """

    name: str
    stored: int
    packed: bytes | None


def new_id() -> str:
    """A new id for a change: short and unguessable."""
    return f"U_{os.urandom(5).hex()}"


class Journal:
    """Writes, finds and forgets changes; finds those visible from `roots`, or all for None."""

    def __init__(self, store: Store, limits: JournalLimits, roots: RootSet | None) -> None:
        self._store, self.limits, self._roots = store, limits, roots
        self._names = store.workspaces
        self._folder = os.path.join(store.data_dir, _FOLDER)
        self.trash = os.path.join(store.data_dir, "trash")
        self._pack = "", b""  # the one that was read last
        self._released: set[str] = set()  # pre-images whose rows are deleted but whose files are not
        self.make_folders()

    def make_folders(self) -> None:
        """Make the folders beside the store, for the first time or where somebody deleted the data directory."""
        try:
            for folder in (self._folder, self.trash):
                os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as exc:
            raise FeatureUnavailable(
                f"{self._store.data_dir} can't be written: {exc.strerror}",
                hint="No change is made without a journal: free space there, or set LLMC_DATA_DIR to another folder.",
            ) from None

    # --- pre-images ------------------------------------------------------------------------------

    def keep(self, data: bytes, name: str = "") -> PreImage:
        """Prepare content for the journal, by its SHA-256 or another name; a large one is on disk when this returns."""
        name, packed = name or hashlib.sha256(data).hexdigest(), zlib.compress(data, _LEVEL)
        if len(packed) <= _INLINE_BYTES:
            return PreImage(name, len(packed), packed)
        path = self._path(name)
        if not os.path.exists(path):
            temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.new"
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with open(fd, "wb") as file:
                    file.write(packed)
                    file.flush()
                    os.fsync(fd)
                os.rename(temporary, path)
            except OSError as exc:
                _unlink(temporary)
                raise FeatureUnavailable(
                    f"the journal can't be written: {exc.strerror}", hint=f"Free space in {self._folder}."
                ) from None
            _sync_folder(self._folder)
        return PreImage(name, len(packed), None)

    def image(self, name: str) -> bytes:
        """A pre-image, by its name or by a place in a pack; STALE when the journal no longer has it."""
        pack, _, place = name.partition(".")
        if not place:
            return self._image(name)
        known, data = self._pack
        if known != pack:
            data = self._image(pack)
            self._pack = pack, data
        offset, size = map(int, place.split("."))
        return data[offset : offset + size]

    def _image(self, sha256: str) -> bytes:
        rows = self._store.query("SELECT data FROM images WHERE sha256=?", (sha256,))
        if not rows:
            raise Stale("the journal no longer holds the earlier content: it made room for newer changes")
        packed = cast(bytes | None, rows[0][0])
        try:
            if packed is None:
                if not os.path.exists(self._path(sha256)):
                    self._store.fetch(_file_of(sha256))
                with open(self._path(sha256), "rb") as file:
                    packed = file.read()
            return zlib.decompress(packed)
        except (OSError, zlib.error) as exc:
            raise Stale(f"the earlier content can't be read from the journal: {exc}") from None

    def image_of_revision(self, revision: str) -> bytes | None:
        """The pre-image whose hash begins so, if there is just one."""
        span = (revision, f"{revision}g")  # g follows the hexadecimal digits
        found = self._store.query("SELECT sha256 FROM images WHERE sha256 >= ? AND sha256 < ? LIMIT 2", span)
        return self.image(cast(str, found[0][0])) if len(found) == 1 else None

    def clear_leftovers(self) -> None:
        """Remove old files that no row names: a crash left them. Young ones may be work in progress."""
        with os.scandir(self._folder) as entries:
            old = [entry.name for entry in entries if time.time() - entry.stat().st_mtime > _LEFTOVER_S]
        if old:
            with self._store.transaction() as connection:
                self._unlink_unnamed(connection, old)

    def remove_released(self) -> None:
        """Remove the files of released pre-images. Call it after the transaction that released them:

        before its commit it could still be rolled back, and rows would name files that are gone.
        """
        if self._released:
            with self._store.transaction() as connection:
                released, self._released = self._released, set()
                self._unlink_unnamed(connection, [f"{sha256}.z" for sha256 in released])

    def _unlink_unnamed(self, connection: Connection, files: Sequence[str]) -> None:
        """In a transaction: while it holds the write lock, no change can begin to refer to one of these files."""
        for name in files:
            row = connection.execute("SELECT 1 FROM images WHERE sha256=?", (name.removesuffix(".z"),)).fetchone()
            if row is None:
                _unlink(os.path.join(self._folder, name))

    def _path(self, sha256: str) -> str:
        return os.path.join(self._store.data_dir, _file_of(sha256))

    # --- writing ---------------------------------------------------------------------------------

    def intend(
        self,
        connection: Connection,
        change_id: str,
        who: Session,
        *,
        action: str,
        roots: str,
        effects: Sequence[Record],
        images: Sequence[PreImage],
        undoes: str | None,
    ) -> bool:
        """Journal a change before it happens; False when a pre-image's file has vanished and must be kept again."""
        row = (change_id, who.principal, who.session_id, who.agent_id, time.time(), action, "pending", own_process())
        made_under, done = self._names.stored_key(roots), self._stored(effects)
        inserted = connection.execute(_INSERT_CHANGE, (*row, made_under, done, undoes, ""))
        number = self._store.given_number(inserted)
        if not self._insert_images(connection, change_id, images):
            return False
        self._make_room(connection, number)
        return True

    def _insert_images(self, connection: Connection, change_id: str, images: Sequence[PreImage]) -> bool:
        for image in {one.name: one for one in images}.values():
            if image.packed is None:
                if not os.path.exists(self._path(image.name)):
                    return False
                self._store.share(connection, _file_of(image.name))
            connection.execute(_INSERT_IMAGE, (image.name, image.stored, image.packed))
            connection.execute(_INSERT_CHANGE_IMAGE, (image.name, change_id))
        return True

    # A command changes files first and is journaled then: a row from before says that it ran, should the server die.

    def announce(
        self, connection: Connection, change_id: str, who: Session, action: str, roots: str, about: str
    ) -> None:
        """Journal that a command is about to run."""
        row = (change_id, who.principal, who.session_id, who.agent_id, time.time(), action, "pending", own_process())
        connection.execute(_INSERT_CHANGE, (*row, self._names.stored_key(roots), "[]", None, about))

    def add_images(self, connection: Connection, change_id: str, images: Sequence[PreImage]) -> None:
        """Journal what files held before a command that is still pending."""
        if not self._insert_images(connection, change_id, images):
            raise FeatureUnavailable("the journal was cleared meanwhile", hint="Try again.")

    def complete(
        self, connection: Connection, change_id: str, action: str, effects: Sequence[Record], *, newest: bool
    ) -> None:
        """Mark a command as done, with what it did; it keeps its number unless it is to be the newest."""
        seq = self._number(connection, change_id) if not newest else self._renumber(connection, change_id)
        update = "UPDATE changes SET state='done', action=?, effects=?, at=? WHERE seq=?"
        connection.execute(update, (action, self._stored(effects), time.time(), seq))
        self._make_room(connection, lambda: seq)

    def _number(self, connection: Connection, change_id: str) -> int:
        rows = connection.execute("SELECT seq FROM changes WHERE id=?", (change_id,)).fetchall()
        if not rows:  # its insertion was lost with a full disk
            raise FeatureUnavailable("the journal has no entry for this command")
        return rows[0][0]

    def _renumber(self, connection: Connection, change_id: str) -> int:
        """Make a change the newest: others were made since it was announced, and are undone after it."""
        seq = self._number(connection, change_id)
        ((newest,),) = connection.execute("SELECT max(seq) FROM changes").fetchall()
        if seq == newest:
            return seq
        connection.execute("UPDATE changes SET id=? WHERE seq=?", (f"{change_id}~", seq))  # the id is the new row's
        ((number,),) = connection.execute(_RENUMBER, (change_id, seq)).fetchall()
        connection.execute("UPDATE change_images SET seq=? WHERE seq=?", (number, seq))
        connection.execute("DELETE FROM changes WHERE seq=?", (seq,))
        return number

    def lose(self, connection: Connection, change_id: str) -> None:
        """Mark a command whose server died before it knew what the command did: that can't be undone."""
        update = "UPDATE changes SET state='failed', dropped=1 WHERE id=? RETURNING seq"
        for (seq,) in connection.execute(update, (change_id,)).fetchall():
            self._release_images(connection, seq)

    def done(
        self, connection: Connection, change_id: str, effects: Sequence[Record], left: Sequence[str]
    ) -> list[str] | None:
        """Mark a change as done. Returns what is to be removed then: what it left, and trash that makes room.

        None if it is no longer there: whoever takes a change back deletes its row.
        """
        update = "UPDATE changes SET state='done' WHERE id=? RETURNING undoes, roots"
        rows = connection.execute(update, (change_id,)).fetchall()
        if not rows:
            return None
        ((undoes, roots),) = rows
        if undoes:
            _undone(connection, undoes, change_id)
        moves = [effect for effect in effects if isinstance(effect, MoveRecord)]
        for effect in (cast(MoveRecord, renamed(effect, self._names.stored)) for effect in moves):
            if effect.path.startswith(TRASH):
                connection.execute("DELETE FROM trash WHERE entry=?", (effect.path[len(TRASH) :],))
            if effect.target.startswith(TRASH):
                entry = (effect.target[len(TRASH) :], change_id, effect.path, effect.kind, effect.bytes, time.time())
                connection.execute(_INSERT_TRASH, entry)
        left = [*left, *(self._trim_trash(connection) if moves else [])]
        stored = self._names.stored
        # What lies in a workspace that this server has not is for one that has it.
        rows = [(renamed_entry(path, stored), roots, "" if is_lost(path) else own_process()) for path in left]
        connection.executemany(_INSERT_LEFTOVER, rows)
        return [path for path in left if not is_lost(path)]

    def hold(self, connection: Connection, change_id: str) -> None:
        """Let nobody else settle a pending change while this transaction lasts, whichever workspace it has locked."""
        connection.execute("UPDATE changes SET state=state WHERE id=? AND state='pending'", (change_id,))

    def failed(self, connection: Connection, change_id: str) -> None:
        """Mark a change that could not be settled: a person must look at it."""
        connection.execute("UPDATE changes SET state='failed' WHERE id=?", (change_id,))

    def forget(self, connection: Connection, change_id: str, state: str) -> None:
        """Delete a change that was taken back, unless somebody else has settled it: then its state is another one."""
        for (seq,) in connection.execute(
            "SELECT seq FROM changes WHERE id=? AND state=?", (change_id, state)
        ).fetchall():
            self._release_images(connection, seq)
            connection.execute("DELETE FROM changes WHERE seq=?", (seq,))

    # --- limits ----------------------------------------------------------------------------------

    def _make_room(self, connection: Connection, number: Callable[[], int]) -> None:
        """Forget what is more than the journal holds; `number` is that of the newest change, which stays."""
        total = _total(connection, "images")  # asked for first: the number has come with it then
        newest = number()
        if newest % _FORGET_EVERY == 0:
            too_old = "SELECT seq FROM changes WHERE seq<=? AND state<>'pending'"
            for (seq,) in connection.execute(too_old, (newest - _MOST_ROWS,)).fetchall():
                self._release_images(connection, seq)
                connection.execute("DELETE FROM changes WHERE seq=?", (seq,))
            total = _total(connection, "images")
        while total > self.limits.total_bytes:
            oldest = connection.execute(
                "SELECT min(seq) FROM change_images WHERE seq<? AND seq IN (SELECT seq FROM changes"
                " WHERE state<>'pending')",
                (newest,),
            ).fetchone()[0]
            if oldest is None:
                break
            connection.execute("UPDATE changes SET dropped=1 WHERE seq=?", (oldest,))
            self._release_images(connection, oldest)
            total = _total(connection, "images")

    def _release_images(self, connection: Connection, seq: int) -> None:
        """Drop a change's pre-images: unreferenced rows at once, their files in `remove_released`."""
        delete = "DELETE FROM change_images WHERE seq=? RETURNING sha256"
        for (sha256,) in connection.execute(delete, (seq,)).fetchall():
            used = connection.execute("SELECT 1 FROM change_images WHERE sha256=? LIMIT 1", (sha256,)).fetchone()
            if used is None:
                connection.execute("DELETE FROM images WHERE sha256=?", (sha256,))
                self._store.unshare(connection, _file_of(sha256))
                if os.path.exists(self._path(sha256)):
                    self._released.add(sha256)

    def _trim_trash(self, connection: Connection) -> list[str]:
        gone: list[str] = []
        while _total(connection, "trash") > self.limits.trash_bytes:
            row = connection.execute(  # an entry larger than the whole limit goes first, or it would evict all others
                "DELETE FROM trash WHERE entry=(SELECT entry FROM trash ORDER BY bytes<=?, at, entry LIMIT 1)"
                " RETURNING entry, change_id",
                (self.limits.trash_bytes,),
            ).fetchall()
            if not row:
                break
            connection.execute("UPDATE changes SET dropped=1 WHERE id=?", (row[0][1],))
            gone.append(renamed_entry(f"{TRASH}{row[0][0]}", self._names.local))
        return gone

    def empty_trash(self, connection: Connection, entry: str) -> str:
        """Forget a trash entry, which is then to be removed; the change that trashed it can no longer be undone."""
        for (change_id,) in connection.execute(
            "DELETE FROM trash WHERE entry=? RETURNING change_id", (entry,)
        ).fetchall():
            connection.execute("UPDATE changes SET dropped=1 WHERE id=?", (change_id,))
        connection.execute(_INSERT_LEFTOVER, (f"{TRASH}{entry}", "[]", own_process()))
        return renamed_entry(f"{TRASH}{entry}", self._names.local)

    def removed(self, connection: Connection, path: str) -> None:
        """Forget a leftover that is gone."""
        connection.execute("DELETE FROM leftovers WHERE path=?", (renamed_entry(path, self._names.stored),))

    # --- reading ---------------------------------------------------------------------------------

    def find(self, change_id: str, principal: str | None) -> Change:
        """A change by its id, of one principal or, for None, of any."""
        rows = self._store.query(
            f"SELECT {_FIELDS} FROM changes WHERE id=?1 AND (?2 IS NULL OR principal=?2)",  # noqa: S608 - own names
            (change_id, principal),
        )
        made_under = self._names.local_key(cast(str, rows[0][_ROOTS])) if rows else ""
        if not rows or (self._roots is not None and not self._roots.covers(made_under)):
            raise NotFound(f"there is no change {change_id[:64]}", hint="List changes with linux_fs_changes.")
        return self._change(rows[0])

    def newest(self, who: Session) -> Change:
        """The newest change of a session that is not undone and not itself an undo."""
        found = self._visible(f"principal=?2 AND session_id=?3 AND {_STANDING} ORDER BY seq DESC LIMIT 1", *_whose(who))
        if not found:
            raise NotFound("this session has no change to undo", hint="Name one: linux_fs_changes(session='all').")
        return found[0]

    def of_session(self, who: Session) -> list[Change]:
        """All changes of a session that are not undone, newest first."""
        return self._visible(f"principal=?2 AND session_id=?3 AND {_STANDING} ORDER BY seq DESC", *_whose(who))

    def history(self, principal: str | None, session_id: str | None, limit: int) -> list[Change]:
        """Completed changes, newest first.

        One session's are found by their index; those of many are read from the newest back (`||''`: without the index)
        until there are enough. Neither depends on how many there are.
        """
        if principal is not None and session_id is not None:
            whose = "principal=?2 AND session_id=?3"
        else:
            whose = "(?2 IS NULL OR principal||''=?2) AND (?3 IS NULL OR session_id||''=?3)"
        wanted = f"state<>'pending' AND {whose} ORDER BY seq DESC LIMIT ?4"
        return self._visible(wanted, principal, session_id, limit)

    def newest_number(self) -> int:
        """The number of the newest change; later ones have higher numbers."""
        return cast(int, self._store.query("SELECT coalesce(max(seq), 0) FROM changes")[0][0])

    def made_by_others(self, since: int) -> list[Change]:
        """What other processes have done since the change of that number."""
        return self._select("seq>? AND process<>? AND state='done'", (since, own_process()))

    def pending(self) -> list[Change]:
        """Changes that are journaled but not done, newest first."""
        return self._select("state='pending' ORDER BY seq DESC", ())

    def of_temporary(self, name: str) -> Change | None:
        """The change that is done and whose step has a temporary name; None if there is none."""
        found = self._select("id=? AND state='done'", (name.removeprefix(".llmc-").rpartition("-")[0],))
        return found[0] if found else None

    def leftovers(self) -> list[Leftover]:
        """What changes that are done have still to remove."""
        rows = self._store.query("SELECT path, roots, process FROM leftovers")
        local = self._names.local
        return [
            Leftover(renamed_entry(str(path), local), [*map(local, paths_of(str(roots)))], str(process))
            for path, roots, process in rows
        ]

    def trashed(self) -> list[tuple[str, str, str, str, int, float]]:
        """The entries of the trash, newest first: entry, change, path, kind, bytes, time."""
        rows = self._store.query(
            "SELECT entry, change_id, path, kind, bytes, at FROM trash ORDER BY at DESC, entry DESC"
        )
        found = cast(list[tuple[str, str, str, str, int, float]], rows)
        return [(*row[:2], self._names.local(row[2]), *row[3:]) for row in found]

    def _visible(self, where: str, *parameters: object) -> list[Change]:
        keys = visible_to(self._store, self._roots)
        return self._select(f"{VISIBLE.format(parameter='?1')} AND {where}", (keys, *parameters))

    def _select(self, where: str, parameters: tuple[object, ...]) -> list[Change]:
        rows = self._store.query(f"SELECT {_FIELDS} FROM changes WHERE {where}", parameters)  # noqa: S608 - own names
        return [self._change(row) for row in rows]

    def _stored(self, effects: Sequence[Record]) -> str:
        return _encoded([renamed(effect, self._names.stored) for effect in effects])

    def _change(self, row: tuple[object, ...]) -> Change:
        fields, local = list(row), self._names.local
        fields[_ROOTS] = [*map(local, paths_of(cast(str, row[_ROOTS])))]
        fields[_EFFECTS] = [renamed(effect, local) for effect in _decoded(cast(str, row[_EFFECTS]))]
        fields[13] = bool(row[13])
        return Change(
            *cast(
                tuple[int, str, str, str, str, float, str, str, str, list[str], list[Record], None, None, bool, str],
                fields,
            )
        )


def _file_of(sha256: str) -> str:
    """The file of a large pre-image in the data directory."""
    return f"{_FOLDER}/{sha256}.z"


_STANDING = "state='done' AND undoes IS NULL AND undone_by IS NULL"


def _whose(who: Session) -> tuple[str, str]:
    return who.principal, who.session_id


def _undone(connection: Connection, change_id: str, by: str) -> None:
    """Mark a change as undone. If it was an undo itself, the change it had undone stands again, and so on."""
    connection.execute("UPDATE changes SET undone_by=? WHERE id=?", (by, change_id))
    earlier = connection.execute("SELECT undoes FROM changes WHERE id=?", (change_id,)).fetchone()
    if earlier is None or earlier[0] is None:
        return
    connection.execute("UPDATE changes SET undone_by=NULL WHERE id=?", (earlier[0],))
    before = connection.execute("SELECT undoes FROM changes WHERE id=?", (earlier[0],)).fetchone()
    if before is not None and before[0] is not None:
        _undone(connection, before[0], earlier[0])


def _total(connection: Connection, name: str) -> int:
    return connection.execute("SELECT bytes FROM totals WHERE name=?", (name,)).fetchone()[0]


def _encoded(effects: Sequence[Record]) -> str:
    """Effects as JSON; those of many files compressed."""
    return pack(msgspec.json.encode(effects))


def _decoded(text: str) -> list[Record]:
    return _decode(unpack(text))


def refuse_dropped(change: Change) -> None:
    """Raise STALE with the reason if a change can't be undone."""
    if change.dropped:
        raise Stale(
            f"{change.id}: what undoing it needs was dropped to make room for newer changes",
            hint="Settings: mcp.limits.journal_max_total_bytes, mcp.limits.trash_max_total_bytes.",
        )
    for effect in change.effects:
        if isinstance(effect, PutRecord) and not effect.kept:
            raise Stale(f"{change.id}: {effect.path} was too large for the journal and was changed without it")


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
