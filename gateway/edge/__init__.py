"""HTTP. Decodes requests, calls the service, encodes what comes back. Decides nothing about runs."""
