"""Records of a release for those who do not know privsyn: registries, catalogues, reviewers.

All are made from a release's certificate, which was verified, and from ``deployment`` of
params.yaml. Whatever the certificate says in free words is escaped for where it goes.
"""
