"""A hand-written grammar of messages to a fictional group of clinics.

``templates`` reads the notation, one module per label holds the sentences, ``people`` invents the
patients, ``voice`` gives each its way of writing, ``compose`` puts a message together, ``messages``
a sample. All people, clinics, pharmacies and insurers are made up; phone numbers and mail domains
are reserved ones. ``python -m tools.portal`` writes the sample that ships in the package.
"""
