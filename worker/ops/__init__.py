"""Plain tensor functions of the model and every variant of its all-reduce.

An op knows no session and no flag; each fast one has a plain twin with the same signature.
"""
