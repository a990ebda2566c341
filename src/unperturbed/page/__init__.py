"""A page to open in a browser: what was trained, what attacks found, and what it looks like, in one file."""

from .pages import Page, write_page

__all__ = ["Page", "write_page"]
