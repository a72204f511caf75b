"""Stands in for flash-attn, which needs CUDA: OpenRLHF imports names of it, and calls none unless rows are packed."""

__version__ = "0.0.0"
