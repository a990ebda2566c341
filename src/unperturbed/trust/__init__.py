"""The trust card: seventeen reasons not to believe a robust accuracy, each looked for in bounded time."""

from .card import Card, Finding
from .examination import CHECKS, trust

__all__ = ["CHECKS", "Card", "Finding", "trust"]
