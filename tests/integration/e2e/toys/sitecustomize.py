"""Makes the toy methods known in every process that has this folder in PYTHONPATH.

Their lines stand here as a user's would in ``METHODS`` of privsyn/methods/registry.py.
"""

from privsyn.methods.registry import METHODS

METHODS["toy_trainer"] = "tests.integration.e2e.test_trained_method:ToyTrainer"
METHODS["toy_drawer"] = "tests.integration.e2e.toy_drawer:ToyDrawer"
