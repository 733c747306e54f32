-- name: prepare
-- What every connection that writes begins with. A WAL that a checkpoint has emptied shrinks to 64 MiB.
PRAGMA foreign_keys = ON;
PRAGMA journal_size_limit = 67108864;

-- name: write_ahead
PRAGMA journal_mode = WAL;

-- name: durable_process
-- Survives the death of the process: what was committed is with the kernel. Checkpoints are made elsewhere.
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 0;

-- name: durable_machine
-- Survives the death of the machine: every commit waits for the disk.
PRAGMA synchronous = FULL;

-- name: tables
SELECT count(*) FROM sqlite_schema;

-- name: application
PRAGMA application_id;

-- name: append_events
INSERT INTO events (run_id, seq, count, body) VALUES (?, ?, ?, ?);

-- name: place_behind
-- Where a run goes on.
SELECT seq + count FROM events WHERE run_id = ? ORDER BY seq DESC LIMIT 1;

-- name: mark
SELECT value FROM mark;

-- name: set_mark
UPDATE mark SET value = ?;

-- name: is_begun
SELECT 1 FROM runs WHERE id = ?;

-- name: upsert_run
-- What a run is pinned to (agent, model, parent, its beginning, its task) never changes.
INSERT INTO runs (
  id, agent, model, status, reason, turns, tool_runs, cost_usd, unconfirmed_cost_usd,
  created_at, updated_at, parent_run_id, parent_call_id, delegated_cost_usd, task
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
  status = excluded.status,
  reason = excluded.reason,
  turns = excluded.turns,
  tool_runs = excluded.tool_runs,
  cost_usd = excluded.cost_usd,
  unconfirmed_cost_usd = excluded.unconfirmed_cost_usd,
  delegated_cost_usd = excluded.delegated_cost_usd,
  updated_at = excluded.updated_at;

-- name: go_on_with_run
-- What changes of a run that was running and still is. To set its status, even to what it is, would write the index of
-- those that are running anew.
UPDATE runs SET
  turns = ?, tool_runs = ?, cost_usd = ?, unconfirmed_cost_usd = ?, delegated_cost_usd = ?, updated_at = ?
WHERE id = ?;

-- name: claim_key
INSERT INTO keys (key, fingerprint, run_id, created_at) VALUES (?, ?, ?, ?);

-- name: keep_answer
-- The first answer stands.
UPDATE keys SET status = coalesce(status, ?), body = coalesce(body, ?) WHERE key = ?;

-- name: claimed
SELECT fingerprint, run_id, status, body FROM keys WHERE key = ?;

-- name: forget_keys
-- Without an index: each claim would pay for it, and opening reads all keys once, 100,000 in 0.2 s.
DELETE FROM keys WHERE created_at < ?;

-- name: read_events
-- From the row that holds the first of them; each has one at least, so that as many rows are enough.
SELECT run_id, seq, body FROM events
WHERE run_id = :run_id
  AND seq >= coalesce((SELECT max(seq) FROM events WHERE run_id = :run_id AND seq <= :after + 1), 0)
ORDER BY seq LIMIT :limit;

-- name: running
SELECT id FROM runs WHERE status = 'running' ORDER BY created_at, id;

-- name: count_of_reason
SELECT count(*) FROM runs WHERE reason = ?;

-- name: page
SELECT id, agent, model, status, reason, turns, tool_runs, cost_usd, unconfirmed_cost_usd,
  created_at, updated_at, parent_run_id, parent_call_id, delegated_cost_usd, task
FROM runs
WHERE (created_at, id) < (:created_at, :id)
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: page_of_status
-- Of runs that have stopped: those that go on are in an index of their own.
SELECT id, agent, model, status, reason, turns, tool_runs, cost_usd, unconfirmed_cost_usd,
  created_at, updated_at, parent_run_id, parent_call_id, delegated_cost_usd, task
FROM runs
WHERE status = :status AND status <> 'running' AND (created_at, id) < (:created_at, :id)
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: page_of_running
SELECT id, agent, model, status, reason, turns, tool_runs, cost_usd, unconfirmed_cost_usd,
  created_at, updated_at, parent_run_id, parent_call_id, delegated_cost_usd, task
FROM runs
WHERE status = 'running' AND (created_at, id) < (:created_at, :id)
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: page_of_agent_and_running
SELECT id, agent, model, status, reason, turns, tool_runs, cost_usd, unconfirmed_cost_usd,
  created_at, updated_at, parent_run_id, parent_call_id, delegated_cost_usd, task
FROM runs INDEXED BY runs_running
WHERE agent = :agent AND status = 'running' AND (created_at, id) < (:created_at, :id)
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: page_of_agent
SELECT id, agent, model, status, reason, turns, tool_runs, cost_usd, unconfirmed_cost_usd,
  created_at, updated_at, parent_run_id, parent_call_id, delegated_cost_usd, task
FROM runs
WHERE agent = :agent AND (created_at, id) < (:created_at, :id)
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: page_of_agent_and_status
SELECT id, agent, model, status, reason, turns, tool_runs, cost_usd, unconfirmed_cost_usd,
  created_at, updated_at, parent_run_id, parent_call_id, delegated_cost_usd, task
FROM runs
WHERE agent = :agent AND status = :status AND status <> 'running' AND (created_at, id) < (:created_at, :id)
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: stats_groups
-- One pass over an index that covers those that have stopped, and over the few that go on. `decimal_sum` is exact
-- (sums.py); 86 400 000 000 microseconds are a day.
SELECT created_at / 86400000000 AS day, agent, model, status, reason, parent_run_id IS NOT NULL AS is_child,
  count(*), sum(turns), decimal_sum(cost_usd),
  coalesce(decimal_sum(delegated_cost_usd) FILTER (WHERE delegated_cost_usd <> '0'), '0')
FROM counted_runs
WHERE created_at >= :since
GROUP BY day, agent, model, status, reason, is_child;

-- name: stats_turns
SELECT turns, count(*) FROM counted_runs WHERE created_at >= :since AND parent_run_id IS NULL GROUP BY turns;

-- name: stats_costs
-- The nearest ranks of 50, 90, 99 and 100 per cent of so many runs; where they coincide, fewer rows.
WITH ranked AS (
  SELECT cost_usd, row_number() OVER (ORDER BY CAST(cost_usd AS REAL)) AS place
  FROM counted_runs WHERE created_at >= :since AND parent_run_id IS NULL
)
SELECT place, cost_usd FROM ranked
WHERE place IN ((:runs * 50 + 99) / 100, (:runs * 90 + 99) / 100, (:runs * 99 + 99) / 100, :runs);

-- name: stats_most_expensive
SELECT id, agent, model, status, reason, turns, tool_runs, cost_usd, unconfirmed_cost_usd,
  created_at, updated_at, parent_run_id, parent_call_id, delegated_cost_usd, task
FROM runs
WHERE id IN (
  SELECT id FROM counted_runs
  WHERE created_at >= :since AND parent_run_id IS NULL
  ORDER BY CAST(cost_usd AS REAL) DESC, created_at, id LIMIT :limit
)
ORDER BY CAST(cost_usd AS REAL) DESC, created_at, id;
