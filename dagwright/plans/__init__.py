"""Plans from documents or Python code: reading, checks, compilation, templates, and pages of large plans.

`plan.Plan` is the public class for plans that are read or built in Python. `preparation` compiles a document for all
interfaces, and `pages` stores large plans. The package imports `dialects`, `store`, `tools` and the pure
packages, and never `client`.
"""
