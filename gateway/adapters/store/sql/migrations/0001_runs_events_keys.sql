-- The log is the truth; `runs` is one row a run for lists, and `keys` remembers what was answered under a client's
-- Idempotency-Key. Times are microseconds since 1970 in UTC, money is decimal text: both exact.

-- 'AgSC': so that somebody else's database is never taken for a store.
PRAGMA application_id = 0x41675343;

CREATE TABLE runs (
  id TEXT NOT NULL PRIMARY KEY,
  agent TEXT NOT NULL,
  model TEXT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT,
  turns INTEGER NOT NULL,
  tool_runs INTEGER NOT NULL,
  cost_usd TEXT NOT NULL,
  unconfirmed_cost_usd TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  parent_run_id TEXT,
  parent_call_id TEXT
) STRICT, WITHOUT ROWID;

-- One index for each way to page. `id` breaks ties, and is part of each index because it is the primary key.
CREATE INDEX runs_newest ON runs (created_at);
CREATE INDEX runs_of_status ON runs (status, created_at);
CREATE INDEX runs_of_agent ON runs (agent, created_at);
CREATE INDEX runs_of_agent_and_status ON runs (agent, status, created_at);
CREATE INDEX runs_of_reason ON runs (reason) WHERE reason IS NOT NULL;
CREATE INDEX runs_running ON runs (created_at) WHERE status = 'running';

-- With a rowid: the events of all runs are written one behind the other, so that a commit touches few pages.
CREATE TABLE events (
  run_id TEXT NOT NULL REFERENCES runs (id),
  seq INTEGER NOT NULL,
  body BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX events_of_run ON events (run_id, seq);

CREATE TABLE keys (
  key TEXT NOT NULL PRIMARY KEY,
  fingerprint TEXT NOT NULL,
  run_id TEXT NOT NULL REFERENCES runs (id),
  status INTEGER,
  body BLOB,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
