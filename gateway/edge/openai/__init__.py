"""OpenAI's API over runs: for clients that were written for it and know nothing of this gateway."""
