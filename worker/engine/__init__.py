"""Owns the rank and decoder processes: launches them, numbers their steps, flips flags between steps.

What is imported in the supervisor (`api`, `engine`) must not import torch.
"""
