"""A model on this machine's CPU behind the OpenAI chat-completions shape, made for agent loops."""
