"""The SQL database of a process: connection, transactions, and tables that are migrated when it is opened.

Import from the modules: `database` opens a database with a `Schema` of `migrations`, and `error_messages` turns driver
errors into sentences. The engine stores agents in it (`dagwright.agents.stored_agents`), applications their own tables.
Nothing here imports Temporal; importing SQLAlchemy takes longer than a short command, so import these modules when they
are needed.
"""
