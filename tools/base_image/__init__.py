"""How the embedded image models were made: a class-conditional diffusion model and an encoder.

Kept so that they can be made again. Nothing in privsyn imports it.
"""
