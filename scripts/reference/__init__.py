"""The generated parts of the documentation: `python -m scripts.reference [--check]`.

A page marks the place of a generated part with `<!-- generated: NAME -->` and `<!-- end of generated -->`. Change the
source of the part, then run `make docs-reference`, which replaces the text between the marks.
"""
