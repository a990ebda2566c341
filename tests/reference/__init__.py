"""Slow twins: the paper written naively, per image, in float64; they share no code with the package."""
