"""What servers with one PostgreSQL count together: the rate of a principal's calls, and how many run at once.

A rate is one row and one statement (the generic cell rate algorithm): `full_at` is the time at which the bucket would
be full again if nobody called, in nanoseconds of the database's clock, read once the row is locked. Whole numbers,
so that servers agree to the call. No bucket is emptier than empty, whatever the limits or the clock were
before. Calls that run are counted in slots: a server takes some in advance and returns what it does not use, and those
of one that died expire.

The tables are unlogged: a call waits for no disk, and after a crash of the database every bucket is full.
"""

from typing import NamedTuple

from .base import Store

_SECOND = 1_000_000_000
_LONGEST = 10**18  # nanoseconds that a bucket may take to fill: 31 years
_ANSWER_S = 0.5  # how long a call waits for a connection: without one, its server counts alone

_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"

TABLES = f"""
    CREATE UNLOGGED TABLE IF NOT EXISTS call_rates (
        principal   TEXT PRIMARY KEY,
        full_at     BIGINT NOT NULL,
        wait        BIGINT NOT NULL,    -- what the last call was told
        at          BIGINT NOT NULL
    ) WITH (fillfactor = 50);
    CREATE UNLOGGED TABLE IF NOT EXISTS call_slots (
        scope       TEXT NOT NULL,      -- a principal, or '': all together
        server      TEXT NOT NULL,
        held        BIGINT NOT NULL,
        until       BIGINT NOT NULL,
        PRIMARY KEY (scope, server)
    ) WITH (fillfactor = 50);
    CREATE OR REPLACE FUNCTION take_call_slots(
        wanted_scope TEXT, by_server TEXT, running BIGINT, more BIGINT, most BIGINT, lasts BIGINT,
        OUT given BIGINT, OUT spare BIGINT
    ) LANGUAGE plpgsql AS $body$
    DECLARE now_ns BIGINT; others BIGINT;
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended(wanted_scope, 1));
        now_ns := {_NOW};
        SELECT coalesce(sum(held), 0) INTO others FROM call_slots
            WHERE scope = wanted_scope AND server <> by_server AND until > now_ns;
        spare := greatest(most - others - running, 0);
        given := running + least(more, spare, greatest(spare / 2, 1));  -- half at most: others find some, too
        spare := spare - (given - running);
        IF given > 0 THEN
            INSERT INTO call_slots (scope, server, held, until)
                VALUES (wanted_scope, by_server, given, now_ns + lasts)
                ON CONFLICT (scope, server) DO UPDATE SET held = excluded.held, until = excluded.until;
        ELSE
            DELETE FROM call_slots WHERE scope = wanted_scope AND server = by_server;
        END IF;
    END $body$;
"""  # noqa: S608 - own text

_TAKE = f"""
    INSERT INTO call_rates AS r (principal, full_at, wait, at)
    SELECT ?1, clock.now + ?2::bigint, 0, clock.now FROM (SELECT {_NOW} AS now OFFSET 0) AS clock
    ON CONFLICT (principal) DO UPDATE SET (full_at, wait, at) = (
        SELECT now + debt + CASE WHEN debt <= ?3::bigint THEN ?2::bigint ELSE 0 END,
               greatest(debt - ?3::bigint, 0), now
        FROM (
            SELECT now, least(greatest(r.full_at - now, 0), ?3::bigint + ?2::bigint) AS debt
            FROM (SELECT {_NOW} AS now OFFSET 0) AS clock OFFSET 0
        ) AS bucket
    )
    RETURNING wait, at
"""  # noqa: S608 - own text
_FORGET = f"DELETE FROM call_rates WHERE full_at < {_NOW}"  # noqa: S608 - own text; a full bucket is as good as none
_FORGET_SLOTS = f"DELETE FROM call_slots WHERE until < {_NOW}"  # noqa: S608 - own text


class Taken(NamedTuple):
    """How a request fared: the seconds that it must wait, 0 if it was admitted, and when that was decided."""

    wait: float
    at: float


class Slots(NamedTuple):
    """Calls that a server may run, and how many nobody has taken."""

    held: int
    spare: int


def take(store: Store, principal: str, rps: float, burst: int) -> Taken:
    """Count a request against the rate of a principal, over all servers."""
    period = min(round(_SECOND / rps), _LONGEST)
    tolerance = min((burst - 1) * period, _LONGEST)
    ((wait, at),) = store.execute_alone(_TAKE, (principal, period, tolerance), wait_s=_ANSWER_S)
    return Taken(int(str(wait)) / _SECOND, int(str(at)) / _SECOND)


def take_slots(store: Store, scope: str, server: str, running: int, more: int, most: int, lasts_s: float) -> Slots:
    """Hold slots for the calls that run and, as far as there are, some more; return all others."""
    values = (scope, server, running, more, most, round(lasts_s * _SECOND))
    ((held, spare),) = store.execute_alone("SELECT * FROM take_call_slots(?, ?, ?, ?, ?, ?)", values, wait_s=_ANSWER_S)
    return Slots(int(str(held)), int(str(spare)))


def forget(store: Store) -> None:
    """Delete what no longer counts: a client may have any number of names, by an issuer's tokens."""
    store.execute_alone(_FORGET)
    store.execute_alone(_FORGET_SLOTS)
