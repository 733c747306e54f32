-- The newest events may be in PATH.tail until they are moved here: a gateway that does not know of it must not open the
-- file. What is in the tail bears the mark of the database that it goes on from, and each commit makes a new one.
CREATE TABLE mark (value INTEGER NOT NULL);
INSERT INTO mark VALUES (0);
