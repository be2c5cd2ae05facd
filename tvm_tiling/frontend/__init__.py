"""Models of other frameworks brought into one form: a Relax module of fixed shapes with its weights inside."""

from .imported import ImportedModel
from .source import load_model

__all__ = ["ImportedModel", "load_model"]
