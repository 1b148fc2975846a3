"""The public Python API: projects, plans and releases, as notebooks and programs use them."""
