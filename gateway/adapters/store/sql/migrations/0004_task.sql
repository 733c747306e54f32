-- The beginning of what the user asked, so that lists say what a run is about. Runs from before have none.
ALTER TABLE runs ADD COLUMN task TEXT NOT NULL DEFAULT '';
