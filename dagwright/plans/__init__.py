"""External plans: read, check and compile documents; templates; pages of large plans.

`plan.Plan` is the public class for plans that are read or built in Python; `preparation` compiles a document for all
interfaces, `pages` stores large plans. Imports `dialects`, `store`, `tools` and the pure packages, and never `client`.
"""
