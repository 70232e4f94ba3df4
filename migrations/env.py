"""Runs the migrations on the connection, and in the transaction, of `store.transaction`."""

from alembic import context

from controlplane.store import evidence_tables, tables
from controlplane.store.columns import METADATA

assert {evidence_tables, tables}, "importing them fills METADATA"

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=METADATA,
    transactional_ddl=True,
    # SQLite alters a table by copying it.
    render_as_batch=connection.dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
