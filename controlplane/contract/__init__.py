"""What worker and control plane agree on: words, measures and messages.

The only package of the control plane that a worker imports, so: standard library and pydantic only,
and no decision of ours in it.
"""
