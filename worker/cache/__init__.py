"""The key and value cache of one session: a ring of frames behind a fixed prefix.

`ring` is pure integers and must not import torch.
"""
