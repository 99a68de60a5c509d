"""Any server that speaks OpenAI's completions or chat protocol."""
