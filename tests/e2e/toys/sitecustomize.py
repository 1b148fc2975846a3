"""Makes the toy methods known in every process that has this folder in PYTHONPATH.

Their lines stand here as a user's would in ``METHODS`` of privsyn/methods/base.py.
"""

from privsyn.methods.base import METHODS

METHODS["toy_trainer"] = "test_trained_method:ToyTrainer"
METHODS["toy_drawer"] = "toy_drawer:ToyDrawer"
