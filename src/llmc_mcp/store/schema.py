"""The tables, as a list of migration steps: version N of the database is what the first N steps make.

A step is never changed once released; a new need is a new step at the end. A server that still runs an older version
keeps writing to a database that a newer one has migrated, so a new column has a default, and every INSERT names its
columns (`insert_into`).

`te` reads this at every start, so nothing is imported here.
"""

STEPS: tuple[str, ...] = (
    """
    CREATE TABLE handles (
        id          TEXT PRIMARY KEY,
        principal   TEXT NOT NULL,
        kind        TEXT NOT NULL,
        created_at  REAL NOT NULL,
        meta        TEXT NOT NULL,   -- JSON: path or root, and for a reference what the file looked like
        payload     TEXT,            -- name of the payload file; NULL for a reference to a file in the roots
        bytes       INTEGER NOT NULL,
        lines       INTEGER NOT NULL,
        line_index  BLOB NOT NULL    -- offset of every 1,024th line, 8 bytes each
    ) STRICT;
    CREATE INDEX handles_by_age ON handles (created_at);
    CREATE INDEX handles_by_payload ON handles (payload);

    CREATE TABLE calls (
        id          INTEGER PRIMARY KEY,
        at          REAL NOT NULL,
        source      TEXT NOT NULL,   -- mcp, te, te_run (the command behind a call that has its own row)
        tool        TEXT NOT NULL,
        status      TEXT NOT NULL,   -- ok, or the error's code
        duration_ms REAL NOT NULL,
        args        TEXT NOT NULL,   -- a summary without contents or secrets
        bytes_in    INTEGER NOT NULL,
        bytes_out   INTEGER NOT NULL,
        principal   TEXT NOT NULL,
        session_id  TEXT NOT NULL,
        agent_id    TEXT NOT NULL,
        model       TEXT NOT NULL
    ) STRICT;
    CREATE INDEX calls_by_age ON calls (at);
    """,
    """
    CREATE TABLE leases (
        token       INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given out twice: the fencing token
        class       TEXT NOT NULL,
        key         TEXT NOT NULL UNIQUE,
        tree        INTEGER NOT NULL,   -- 1: everything below the key is held too
        agent_id    TEXT NOT NULL,
        session_id  TEXT NOT NULL,
        process     TEXT NOT NULL,
        purpose     TEXT NOT NULL,      -- the change it was taken for, or empty
        taken_at    REAL NOT NULL,
        expires_at  REAL NOT NULL
    ) STRICT;
    CREATE INDEX leases_by_purpose ON leases (purpose);

    CREATE TABLE changes (
        seq         INTEGER PRIMARY KEY AUTOINCREMENT,
        id          TEXT NOT NULL UNIQUE,
        principal   TEXT NOT NULL,
        session_id  TEXT NOT NULL,
        agent_id    TEXT NOT NULL,
        at          REAL NOT NULL,
        action      TEXT NOT NULL,
        state       TEXT NOT NULL,      -- pending: meant, maybe under way; done; failed: could not be settled
        process     TEXT NOT NULL,
        roots       TEXT NOT NULL,      -- JSON: the roots it was made below
        effects     TEXT NOT NULL,      -- JSON: what it does to which path
        undoes      TEXT,               -- the change that this one takes back
        undone_by   TEXT,
        dropped     INTEGER NOT NULL DEFAULT 0  -- 1: what undoing needs made room for newer changes
    ) STRICT;
    CREATE INDEX changes_by_session ON changes (principal, session_id, seq);
    CREATE INDEX changes_pending ON changes (seq) WHERE state='pending';

    CREATE TABLE images (               -- what files held before a change
        sha256      TEXT PRIMARY KEY,
        stored      INTEGER NOT NULL,   -- bytes that it takes, compressed
        data        BLOB                -- NULL: in a file of that name in the folder journal
    ) STRICT;
    CREATE TABLE change_images (
        seq         INTEGER NOT NULL REFERENCES changes (seq) ON DELETE CASCADE,
        sha256      TEXT NOT NULL REFERENCES images (sha256),
        PRIMARY KEY (seq, sha256)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX change_images_by_image ON change_images (sha256);

    CREATE TABLE trash (
        entry       TEXT PRIMARY KEY,   -- its name in the folder trash
        change_id   TEXT NOT NULL,
        path        TEXT NOT NULL,      -- where it was
        kind        TEXT NOT NULL,      -- file, dir, symlink, other
        bytes       INTEGER NOT NULL,
        at          REAL NOT NULL
    ) STRICT;
    CREATE INDEX trash_by_age ON trash (at);

    -- Sums that every change asks for: adding the rows up each time would grow with the journal.
    CREATE TABLE totals (name TEXT PRIMARY KEY, bytes INTEGER NOT NULL) STRICT;
    INSERT INTO totals VALUES ('images', 0), ('trash', 0);
    CREATE TRIGGER image_added AFTER INSERT ON images
        BEGIN UPDATE totals SET bytes = bytes + new.stored WHERE name = 'images'; END;
    CREATE TRIGGER image_gone AFTER DELETE ON images
        BEGIN UPDATE totals SET bytes = bytes - old.stored WHERE name = 'images'; END;
    CREATE TRIGGER trash_added AFTER INSERT ON trash
        BEGIN UPDATE totals SET bytes = bytes + new.bytes WHERE name = 'trash'; END;
    CREATE TRIGGER trash_gone AFTER DELETE ON trash
        BEGIN UPDATE totals SET bytes = bytes - old.bytes WHERE name = 'trash'; END;
    """,
    """
    ALTER TABLE calls ADD COLUMN correlation_id TEXT NOT NULL DEFAULT '';
    ALTER TABLE calls ADD COLUMN tokens_in INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE calls ADD COLUMN tokens_out INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE calls ADD COLUMN tokens_saved INTEGER NOT NULL DEFAULT 0;  -- produced, and kept from the model
    CREATE INDEX calls_by_tool ON calls (tool, at);
    """,
    """
    ALTER TABLE calls ADD COLUMN mode TEXT NOT NULL DEFAULT '';  -- of te and te_run: enriched, passthrough, raw
    CREATE INDEX calls_of_te ON calls (agent_id, session_id) WHERE source IN ('te', 'te_run');
    """,
    """
    ALTER TABLE calls ADD COLUMN budget_profile TEXT NOT NULL DEFAULT '';  -- as the client or the configuration says
    """,
    """
    ALTER TABLE handles ADD COLUMN roots TEXT NOT NULL DEFAULT '';  -- the key of a root set; '': from before
    ALTER TABLE calls ADD COLUMN roots TEXT NOT NULL DEFAULT '';
    CREATE TABLE root_sets (roots TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;  -- every key that some row has or had
    INSERT OR IGNORE INTO root_sets SELECT DISTINCT roots FROM changes;
    CREATE TRIGGER handle_roots AFTER INSERT ON handles
        BEGIN INSERT OR IGNORE INTO root_sets VALUES (new.roots); END;
    CREATE TRIGGER call_roots AFTER INSERT ON calls
        BEGIN INSERT OR IGNORE INTO root_sets VALUES (new.roots); END;
    CREATE TRIGGER change_roots AFTER INSERT ON changes
        BEGIN INSERT OR IGNORE INTO root_sets VALUES (new.roots); END;
    """,
    """
    CREATE TABLE leftovers (            -- what changes that are done have still to remove
        path        TEXT PRIMARY KEY,   -- below a root, or trash:NAME
        roots       TEXT NOT NULL,      -- JSON: the roots that the change was made below
        process     TEXT NOT NULL       -- which is removing it
    ) STRICT, WITHOUT ROWID;
    """,
    """
    ALTER TABLE changes ADD COLUMN about TEXT NOT NULL DEFAULT '';  -- of a command: its line
    """,
    """
    CREATE TABLE approvals (            -- what a person is asked before a call may do it
        id          TEXT PRIMARY KEY,
        call        TEXT NOT NULL,      -- sha256 of the tool, its arguments, its deed, and whose call it is
        tool        TEXT NOT NULL,
        arguments   TEXT NOT NULL,      -- JSON, as a person reads it; cut where it is long
        deed        TEXT NOT NULL,      -- what the call is about to do, in a sentence
        rule        TEXT NOT NULL,      -- which rule asks
        principal   TEXT NOT NULL,
        session_id  TEXT NOT NULL,
        agent_id    TEXT NOT NULL,
        asked_at    REAL NOT NULL,
        expires_at  REAL NOT NULL,
        state       TEXT NOT NULL,      -- pending, approved, denied, used
        answered_by TEXT NOT NULL DEFAULT '',
        answered_at REAL NOT NULL DEFAULT 0
    ) STRICT;
    CREATE INDEX approvals_by_call ON approvals (call, state);
    CREATE INDEX approvals_by_age ON approvals (expires_at);

    CREATE TABLE tokens (               -- of HTTP clients; only hashes
        name        TEXT PRIMARY KEY,
        sha256      TEXT NOT NULL UNIQUE,
        scopes      TEXT NOT NULL,      -- separated by commas
        tools       TEXT NOT NULL,      -- patterns of the tools it may call, separated by commas; '': all
        created_at  REAL NOT NULL,
        expires_at  REAL NOT NULL       -- 0: never
    ) STRICT;
    """,
    """
    ALTER TABLE calls ADD COLUMN sandbox TEXT NOT NULL DEFAULT '';  -- the level of its server's commands, once known
    CREATE INDEX calls_by_session ON calls (session_id, id);
    """,
    """
    CREATE TABLE workspaces (           -- the folders that servers of several machines know; empty in SQLite
        place       TEXT PRIMARY KEY,   -- what tells the folder from any other
        name        TEXT NOT NULL,      -- which paths in rows begin with
        path        TEXT NOT NULL,      -- where a server saw it last
        above       TEXT NOT NULL       -- JSON: the places of the folders that hold it
    ) STRICT, WITHOUT ROWID;
    ALTER TABLE leases ADD COLUMN wanted INTEGER NOT NULL DEFAULT 0;  -- 1: somebody waits for its end
    """,
    """
    CREATE TABLE secrets (              -- that all servers of the store sign with
        name        TEXT PRIMARY KEY,
        value       TEXT NOT NULL,
        made_at     REAL NOT NULL
    ) STRICT;
    CREATE TABLE sign_ins (             -- of browsers; only hashes
        sha256      TEXT PRIMARY KEY,
        kind        TEXT NOT NULL,      -- cookie, or link: works once
        principal   TEXT NOT NULL,
        token       TEXT NOT NULL,      -- sha256 of the token that it stands for
        made_at     REAL NOT NULL,
        until       REAL NOT NULL
    ) STRICT;
    CREATE INDEX sign_ins_by_age ON sign_ins (until);

    CREATE TABLE audit_chains (         -- one for every process that wrote to the audit, by the order of their starts
        number      INTEGER PRIMARY KEY,
        chain       TEXT NOT NULL UNIQUE,
        seq         INTEGER NOT NULL,   -- of the last row that is past its retention, 0: none
        hash        TEXT NOT NULL       -- of that row
    ) STRICT;
    CREATE TABLE audit (
        chain       TEXT NOT NULL,
        seq         INTEGER NOT NULL,
        at          REAL NOT NULL,
        line        TEXT NOT NULL,      -- JSON, as it was hashed
        PRIMARY KEY (chain, seq)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX audit_by_age ON audit (at);
    """,
    """
    CREATE TABLE replicas (             -- HTTP servers that share this store
        id          TEXT PRIMARY KEY,
        url         TEXT NOT NULL,      -- where the others reach it
        key         TEXT NOT NULL,      -- which calls that are forwarded to it are signed with; new at each start
        seen_at     REAL NOT NULL       -- its last heartbeat, by the store's clock
    ) STRICT;
    CREATE TABLE owners (               -- which replica a program that outlives its call runs in
        proc_id     TEXT PRIMARY KEY,
        replica     TEXT NOT NULL,
        principal   TEXT NOT NULL,
        session_id  TEXT NOT NULL
    ) STRICT;
    CREATE INDEX owners_by_session ON owners (principal, session_id);
    CREATE INDEX owners_by_replica ON owners (replica);
    """,
    """
    CREATE TABLE shared_indexes (       -- code indexes that servers with other data directories can begin with
        workspace   TEXT NOT NULL,
        kind        TEXT NOT NULL,      -- the rules that it was made by
        format      INTEGER NOT NULL,
        at          REAL NOT NULL,      -- when a server last said that it is of use
        folder      TEXT NOT NULL,      -- of its files, below shared-index
        files       TEXT NOT NULL,      -- JSON: the name, size, hash and stored size of each
        PRIMARY KEY (workspace, kind)
    ) STRICT, WITHOUT ROWID;
    """,
)


def insert_into(table: str, columns: tuple[str, ...]) -> str:
    """The statement that inserts one row, naming its columns."""
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608 - own names


def count_of(condition: str) -> str:
    """How many rows of a group a condition holds for, as a column of a query."""
    return f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END)"


def insert_missing(table: str, columns: tuple[str, ...]) -> str:
    """The same for a row that may be there already: then it stays as it is."""
    return f"{insert_into(table, columns)} ON CONFLICT DO NOTHING"


def insert_or_replace(table: str, columns: tuple[str, ...]) -> str:
    """The same for a row that may be there already, by the first column: then it gets the new values."""
    key, *others = columns
    new = ", ".join(f"{column}=excluded.{column}" for column in others)
    return f"{insert_into(table, columns)} ON CONFLICT ({key}) DO UPDATE SET {new}"
