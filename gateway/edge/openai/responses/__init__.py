"""POST /v1/responses: OpenAI's newer API, as far as its own libraries use it, over the same runs."""
