"""How the embedded language model is made: episodes, training, evaluation, export.

Public text only. ``python -m tools.base_lm --help`` lists the four steps.
"""
