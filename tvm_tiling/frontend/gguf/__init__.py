"""GGUF files of language models."""
