"""The video diffusion transformer of one rank: weights from a seed, blocks, one all-reduce each.

Must not know which variant of the all-reduce it calls.
"""
