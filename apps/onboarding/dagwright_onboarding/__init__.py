"""Parties that plans refer to: the store, the search by name, the onboarding verbs and the CSV import.

Import from the modules: `database` opens the store, `verbs` has the tools, `lookup` and `resolution` find
parties, `party_loading` reads CSV files, `overview` lists the content of the store. Nothing here imports Temporal.
"""
