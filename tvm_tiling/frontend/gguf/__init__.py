"""Import of language models from GGUF files."""
