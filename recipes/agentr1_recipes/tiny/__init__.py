"""Small chat models made from nothing, for recipes that must train anywhere, without a download."""

from agentr1_recipes.tiny.model import write_tiny_model
from agentr1_recipes.tiny.tokenizer import as_texts, train_tokenizer

__all__ = ["as_texts", "train_tokenizer", "write_tiny_model"]
