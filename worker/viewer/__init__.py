"""The synthetic viewer: asks workers for sessions and measures what a person would have had.

No torch, no numpy, and nothing of the worker's server: it speaks the protocol as any viewer does.
"""
