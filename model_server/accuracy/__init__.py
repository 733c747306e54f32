"""How well weights call tools: prompts whose right calls are known, asked of each quantisation."""
