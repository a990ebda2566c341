"""Robust training with few labels."""

__version__ = "0.1.0"
