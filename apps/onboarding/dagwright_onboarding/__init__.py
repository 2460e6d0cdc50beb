"""Parties that plans work on: the store, finding them by name, the onboarding verbs, loading and looking.

Import from the modules: `database` opens the store, `verbs` has the tools, `lookup` and `resolution` find
parties, `loading` reads CSV files, `overview` tells people what is there. Nothing here imports Temporal.
"""
