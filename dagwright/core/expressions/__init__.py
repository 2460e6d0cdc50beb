"""References, paths, CEL conditions and JSONPath queries, with a compute budget for each evaluation.

A reference is parsed once, when a plan is accepted; results are never scanned for references.
The modules may import `core.model`.
"""
