"""Rows and the values they stand for: SQLAlchemy Core on SQLite or PostgreSQL, one file per noun.

Every function takes the connection first and neither commits nor decides; `transaction.py` alone
commits, `dialect.py` alone knows which database it is. The dataclasses of the domain are the truth:
a store maps rows to and from them. `fleet` in a signature is the fleet's name.
"""
