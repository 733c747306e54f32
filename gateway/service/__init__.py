"""Drives runs. Knows the core and its ports; knows no HTTP, no database and no provider."""
