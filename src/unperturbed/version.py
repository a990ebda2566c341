"""The version, which runs and reports name: a change of what is computed has another."""

__version__ = "0.2.0"
