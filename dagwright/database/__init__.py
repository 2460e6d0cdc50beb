"""The SQL database of a process: connection, transactions, and tables that are migrated when the database is opened.

Import from the modules: `migrations` describes the tables as a `Schema`, `database` opens a database with these tables,
and `error_messages` turns driver errors into sentences. The engine stores agents in the database
(`dagwright.agents.stored_agents`). Applications store their own tables. Nothing here imports Temporal. Importing
SQLAlchemy takes longer than a short command, so import these modules only when they are needed.
"""
