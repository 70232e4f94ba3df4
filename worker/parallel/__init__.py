"""What the processes of one group share: channels, numbered plans, a board, slots and gloo.

Must not know what a model or a flag is; `channel`, `plan` and `board` must not import torch.
"""
