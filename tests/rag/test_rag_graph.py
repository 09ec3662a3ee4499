"""The graph of Python: who uses what, how sure that is. Each repository marks in comments what is expected."""

import pytest

from llmc_mcp.rag.query.graph import Graph

from ..support.repositories import Repository, expect


def test_imports_aliases_and_module_attributes_are_followed() -> None:
    expect(
        "pkg/store.py:save",
        """
        --- pkg/__init__.py
        --- pkg/store.py
        def save():
            pass


        save()  # @exact
        --- pkg/other.py
        def save():
            pass


        class Rival:
            def save(self):
                pass
        --- pkg/a.py
        from .store import save as keep  # @exact

        keep()  # @exact
        save()
        --- pkg/b.py
        import pkg.store
        from pkg import store as s

        pkg.store.save()  # @exact
        s.save()  # @exact
        --- pkg/c.py
        from pkg.other import save
        from os import path

        save()
        path.save()
        --- main.py
        def run():
            from pkg.store import save  # @exact

            return save  # @exact
        """,
    )


def test_what_a_package_passes_on_is_still_the_same_thing() -> None:
    expect(
        "Model.save",
        """
        --- pkg/__init__.py
        from .base import Model as Base
        from .more import *
        --- pkg/base.py
        class Model:
            def save(self):
                pass
        --- pkg/more.py
        from .base import Model
        --- pkg/rival.py
        def save():
            pass


        class Rival:
            def save(self):
                pass
        --- one.py
        from pkg import Base

        Base().save()  # @exact
        --- two.py
        import pkg

        pkg.Model().save()  # @exact
        --- three.py
        from pkg import *

        thing = Model()
        thing.save()  # @exact
        """,
    )


def test_receivers_are_known_by_what_they_were_made_from() -> None:
    expect(
        "Model.save",
        """
        --- models.py
        class Model:
            def save(self):
                pass

            def twice(self):
                self.save()  # @exact
                return self

            @classmethod
            def make(cls):
                return cls()
        --- rival.py
        def save():
            pass


        class Rival:
            def save(self):
                pass
        --- use.py
        from models import Model
        from rival import Rival


        class Keeper:
            default: Model

            def __init__(self, given: 'Model | None', other):
                self.own = Model()
                self.given = given
                self.rival = Rival()
                self.other = other

            @property
            def first(self) -> Model:
                return self.own

            def go(self):
                self.own.save()  # @exact
                self.given.save()  # @exact
                self.default.save()  # @exact
                self.first.save()  # @exact
                self.rival.save()
                self.other.save()  # @name_only
                Model().twice().save()  # @exact
                Model.make().save()  # @exact
                with Model() as opened:
                    opened.save()  # @exact
                for one in self.other:
                    one.save()  # @name_only
                [].save()
                'x'.save()
        """,
    )


def test_methods_come_from_the_class_that_the_resolution_order_names() -> None:
    expect(
        "Right.run",
        """
        --- base.py
        class Base:
            def run(self):
                pass


        class Left(Base):
            pass


        class Right(Base):
            def run(self):
                super().run()


        class Both(Left, Right):
            def go(self):
                self.run()  # @exact
                super().run()  # @exact


        Left().run()
        --- other.py
        class Other:
            def run(self):
                pass
        """,
    )


def test_a_call_of_a_method_may_land_in_its_override() -> None:
    expect(
        "Child.run",
        """
        --- base.py
        class Base:
            def run(self):
                pass

            def go(self):
                self.run()  # @likely
        --- child.py
        from base import Base


        class Child(Base):
            def run(self):
                super().run()
        """,
    )


def test_a_local_name_hides_the_one_outside() -> None:
    expect(
        "shadow.py:save",
        """
        --- shadow.py
        def save():
            pass


        def a(save):
            save()


        def b():
            save = print
            save()


        def c():
            def save():
                pass

            save()


        def d():
            return [save for save in ()]


        def e():
            global save  # @exact
            save()  # @exact


        class F:
            save = 1

            def g(self):
                return save  # @exact
        """,
    )


def test_files_that_import_each_other_come_to_an_end() -> None:
    expect(
        "b.py:beta",
        """
        --- a.py
        from b import beta  # @exact
        from b import gamma as gamma


        class A(beta):  # @exact
            pass
        --- b.py
        from a import A
        from a import gamma


        class beta(A):
            pass


        beta().nothing().at.all()  # @exact
        """,
    )


def test_a_name_that_only_one_thing_has_is_found_whoever_is_asked() -> None:
    expect(
        "frobnicate",
        """
        --- a.py
        class Tool:
            def frobnicate(self):
                pass
        --- b.py
        def use(tool, items, make):
            tool.frobnicate()  # @likely
            items[0].frobnicate()  # @likely
            make(tool)(1).frobnicate()  # @likely
            getattr(tool, 'frobnicate')
        """,
    )


def test_texts_comments_and_arguments_are_no_uses_but_what_stands_in_braces_is() -> None:
    expect(
        "name",
        """
        --- a.py
        def name():
            pass


        f"{name()} name"  # @exact
        f(name=1)
        "name"
        x = {"name": name}  # @exact
        __all__ = ["name"]  # @exact
        --- b.py
        import a


        def g(x: 'a.name'):  # @exact
            pass


        # a.name()
        """,
    )


def test_every_use_of_a_decorated_property_is_found() -> None:
    expect(
        "Box.size",
        """
        --- a.py
        class Box:
            @property
            def size(self):
                return 1

            @size.setter  # @exact
            def size(self, value):
                pass


        Box().size  # @exact
        """,
    )


def test_a_file_that_a_machine_wrote_is_read_to_the_end() -> None:
    calls = "".join(f"x{number} = f({number})  # @exact\n" for number in range(3_000))
    expect("f", {"a.py": f"def f(n):\n    return n\n\n\n{calls}", "b.py": "class C:\n    def f(self):\n        pass\n"})


def test_code_that_is_broken_or_nested_without_end_does_no_harm() -> None:
    sources = {
        "a.py": "def f(:\n  class ((\nimport\nfrom . import\n@\nf(f(f(\n",
        "deep.py": "x = " + "f(" * 5_000 + ")" * 5_000 + "\n" + "a" + ".b" * 5_000 + "\n",
        "bad.py": "\x00\udc80".encode("utf-8", "replace").decode() + "def f(): f()",
        "loop.py": "x = x\ny = y.z()\nclass A(A): pass\nclass B(C): pass\nclass C(B): pass\nC().f()\n",
    }
    graph = Graph(Repository(sources))
    assert {graph.path(use.file) for use in graph.uses(graph.find("f"))} >= {"a.py"}


def test_a_tower_of_classes_and_patterns_nested_without_end_are_survived() -> None:
    tower = "class C0:\n    def f(self): pass\n" + "".join(f"class C{n}(C{n - 1}): pass\n" for n in range(1, 2_000))
    graph = Graph(
        Repository({"a.py": f"{tower}\nC1999().f()\nC5().f()\n", "b.py": "(" * 3_000 + "a" + ")" * 3_000 + " = f"})
    )
    found = {use.line: use.confidence for use in graph.uses(graph.find("f"))}
    assert found[2_004] == "exact"
    assert found[2_003] == "likely"  # the height is too much to climb, but nothing else has that name


# --- names -----------------------------------------------------------------------------------------

NAMES = {
    "pkg/__init__.py": "from .base import Model\n",
    "pkg/base.py": "class Model:\n    def save(self):\n        pass\n\n\nclass Child(Model):\n    pass\n",
    "pkg/other.py": "class Model:\n    def save(self):\n        pass\n",
}


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("save", 2),
        ("Model.save", 2),
        ("Model::save", 2),
        ("Model.save()", 2),
        ("pkg/base.py:Model.save", 1),
        ("base.py:save", 1),
        ("base:Model", 1),
        ("pkg.base.Model.save", 1),
        ("base.Model", 1),
        ("pkg.Model.save", 1),
        ("Child.save", 1),
        ("Nothing.save", 0),
        ("nowhere.py:save", 0),
        ("", 0),
        (":", 0),
        ("...", 0),
    ],
)
def test_a_symbol_can_be_written_in_several_ways(written: str, count: int) -> None:
    assert len(Graph(Repository(NAMES)).find(written)) == count


def test_what_a_method_calls_is_found_even_where_only_the_name_speaks_for_it() -> None:
    repository = Repository(
        {
            "a.py": "class Store:\n    def run(self, given):\n        self.own()\n        given.load()\n"
            "        given.only()\n        helper()\n        len(given)\n\n    def own(self): pass\n\n\n"
            "def helper(): pass\n",
            "b.py": "class One:\n    def load(self): pass\n\n\nclass Two:\n    def load(self): pass\n"
            "    def only(self): pass\n",
        }
    )
    graph = Graph(repository)
    (run,) = graph.find("Store.run")
    called = {(graph.symbol(edge.target).qualname, edge.confidence) for edge in graph.edges(run)}
    assert called == {
        ("Store.own", "exact"),
        ("helper", "exact"),
        ("Two.only", "likely"),
        ("One.load", "name_only"),
        ("Two.load", "name_only"),
    }


def test_a_method_that_the_language_has_too_is_no_more_than_a_name_on_an_unknown_receiver() -> None:
    expect(
        "Context.copy",
        """
        --- a.py
        class Context:
            def copy(self):
                return self


        def f(given, own: Context):
            given.copy()  # @name_only
            own.copy()  # @exact
        """,
    )


def test_what_stands_above_a_class_is_not_its_own_method() -> None:
    expect(
        "Request.max_parts",
        """
        --- a.py
        from elsewhere import Base


        class Request(Base):
            def max_parts(self):
                return super().max_parts()

            def other(self):
                return self.max_parts()  # @exact
        """,
    )
