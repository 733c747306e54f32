"""The pure half: what a run is, what happens next, and what each event does to it.

Nothing here reads a clock, a file, a socket or a database. Costs, validated arguments, times and ids come in as data.
"""
