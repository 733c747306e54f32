-- How much of a run's cost its subagents' runs have in rows of their own, so that sums over runs count it once.
ALTER TABLE runs ADD COLUMN delegated_cost_usd TEXT NOT NULL DEFAULT '0';

-- All that the figures over many runs read, so that they never touch the rows. Its order begins with the period.
CREATE INDEX runs_stats ON runs (
  created_at, agent, model, status, reason, parent_run_id, turns, cost_usd, delegated_cost_usd
);
