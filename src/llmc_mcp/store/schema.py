"""The tables, as a list of steps: version N of the database is what the first N steps make.

A step is never changed once released; a new need is a new step at the end.
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
        source      TEXT NOT NULL,   -- mcp, te
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
)
