"""Talks between the processes of one group: framed channels, numbered plans, the progress board, slots and gloo.

Must not know what a model or a flag is; `channel`, `plan` and `board` must not import torch.
"""
