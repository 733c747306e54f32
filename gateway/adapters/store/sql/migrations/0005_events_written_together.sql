-- A row holds the events that were written together, a line each: `seq` is that of the first, `count` how many there are.
-- Rows from before hold one each.
ALTER TABLE events ADD COLUMN count INTEGER NOT NULL DEFAULT 1;
