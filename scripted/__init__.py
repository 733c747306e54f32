"""A deterministic model provider in the OpenAI chat-completions shape: a reply is a pure function of its request."""
