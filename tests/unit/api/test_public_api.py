"""The names and signatures that programs and notebooks rely on. To change one is to break them."""

import inspect

import pytest

import privsyn

PUBLIC = {
    "Project.open": "(folder='.', *, day=None, texts=None, **settings)",
    "Project.create": "(folder, data, *, unit, text='text', roles=(), label=None, labels=(), "
    "columns=None, document=None, protects=None, name=None, version='v1', image_size=None, "
    "image_mode=None, account=None, method=None, texts=None, **settings)",
    "Project.using": "(self, data, *, version)",
    "Project.check": "(self)",
    "Project.plan": "(self, method=None, *, epsilon=None, delta=None, draw=None, texts=None, "
    "time=False, **settings)",
    "Project.release": "(self, planned, *, publish=True)",
    "Project.releases": "(self)",
    "Project.open_release": "(self, name)",
    "Release.open": "(folder)",
    "Release.verify": "(self, ledger=None)",
    "Release.frame": "(self)",
    "Release.images": "(self)",
    "Release.report": "(self, *, internal=False)",
    "Release.export": "(self, form, target, *, license=None)",
    "Release.more": "(self, n, *, publish=True)",
    "Release.distill": "(self, *, publish=True, evaluate=True, **settings)",
}
PROPERTIES = {"Project": {"folder", "ledger"}, "Release": {"certificate", "folder", "name", "plan"}}


def signature(function):
    found = inspect.signature(function)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in found.parameters.values()
    ]
    return str(inspect.Signature(bare))


@pytest.mark.parametrize("name", PUBLIC)
def test_signatures_stay(name):
    kind, _, method = name.partition(".")
    assert signature(getattr(getattr(privsyn, kind), method)) == PUBLIC[name]


@pytest.mark.parametrize("kind", PROPERTIES)
def test_there_is_nothing_beside_them(kind):
    members = {
        name: value for name, value in vars(getattr(privsyn, kind)).items() if name[0] != "_"
    }
    properties = {name for name, value in members.items() if isinstance(value, property)}
    assert properties == PROPERTIES[kind]
    assert {f"{kind}.{name}" for name in members.keys() - properties} == {
        name for name in PUBLIC if name.startswith(f"{kind}.")
    }


def test_all_of_it_is_documented_and_guarded():
    for name in PUBLIC:
        kind, _, method = name.partition(".")
        function = getattr(getattr(privsyn, kind), method)
        assert inspect.getdoc(function), name
        assert hasattr(inspect.unwrap(function), "__code__")
        assert inspect.unwrap(function) is not getattr(function, "__func__", function), name


def test_the_package_offers_these_names():
    assert set(privsyn.__all__) == {"PrivsynError", "Project", "Release", "__version__"}
    assert set(privsyn.__all__) <= set(dir(privsyn))
    with pytest.raises(AttributeError, match="no attribute 'Projekt'"):
        privsyn.Projekt  # noqa: B018
