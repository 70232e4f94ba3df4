"""What a person or a worker asks for: one function for each thing asked.

Services load what the domain needs, let it decide, and keep the result through the store. They
decide nothing themselves and know nothing of HTTP or of terminals.
"""
