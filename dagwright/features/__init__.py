"""Features of a run beside scheduling, one package each. Pure.

Features import `core`, and each other only through the public names of a package.
"""
