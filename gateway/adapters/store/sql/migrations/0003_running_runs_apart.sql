-- While a run goes on, its row is in three indexes, by what never changes: a turn touches none of them. The others take
-- it up when it has stopped.
DROP INDEX runs_of_status;
DROP INDEX runs_of_agent_and_status;
DROP INDEX runs_stats;

CREATE INDEX runs_of_status ON runs (status, created_at) WHERE status <> 'running';
CREATE INDEX runs_of_agent_and_status ON runs (agent, status, created_at) WHERE status <> 'running';

-- All that the figures over many runs read of those that have stopped, which are nearly all.
CREATE INDEX runs_stats ON runs (
  created_at, agent, model, status, reason, parent_run_id, turns, cost_usd, delegated_cost_usd
) WHERE status <> 'running';

CREATE VIEW counted_runs AS
SELECT id, created_at, agent, model, status, reason, parent_run_id, turns, cost_usd, delegated_cost_usd
FROM runs WHERE status <> 'running'
UNION ALL
SELECT id, created_at, agent, model, status, reason, parent_run_id, turns, cost_usd, delegated_cost_usd
FROM runs WHERE status = 'running';
