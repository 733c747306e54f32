"""A recorded run as a document, and that document played again: what went in comes from the record, what comes out is
compared with it. Nothing that a run did to the world is done again."""
