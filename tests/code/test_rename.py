"""Renaming a definition: every certain place, nothing else, in one change that can be undone."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from llmc_mcp.errors import Conflict, InvalidArgument, NotFound
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.kernel import syscalls

from ..support.gates import context, gate_on
from ..support.workspace import require

Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def landlock() -> None:
    require(syscalls.landlock_abi() > 0, "Landlock")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("code")


@pytest.fixture(scope="module")
def gate(root: Path) -> Iterator[Gate]:
    with gate_on(root) as made:
        yield made


@pytest.fixture
def call(gate: Gate) -> Call:
    def run(tool: str, **arguments: object) -> Any:
        return gate.call(context(gate), tool, arguments)

    return run


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def read(root: Path, *names: str) -> list[str]:
    return [(root / name).read_text() for name in names]


def test_a_python_function_is_renamed_wherever_it_is_certainly_meant(root: Path, call: Call) -> None:
    files = {
        "py/__init__.py": "from .load import parse_row\n__all__ = ['parse_row']\n",
        "py/load.py": "def parse_row(text):\n    return text\n\n\ndef every(all):\n    return map(parse_row, all)\n",
        "py/use.py": (
            "from py import parse_row as shorter\nfrom py.load import parse_row\nimport py.load\n\n"
            "shorter(1), parse_row(2), py.load.parse_row(3)  # parse_row stays in a comment\n\n"
            "def other(parse_row=None):\n    return parse_row\n\nother(parse_row=4)\ntext = 'parse_row'\n"
        ),
    }
    write(root, files)
    done = call("code_edit", symbol="parse_row", action="rename", new_name="read_row")
    assert read(root, *files) == [
        "from .load import read_row\n__all__ = ['read_row']\n",
        "def read_row(text):\n    return text\n\n\ndef every(all):\n    return map(read_row, all)\n",
        (
            "from py import read_row as shorter\nfrom py.load import read_row\nimport py.load\n\n"
            "shorter(1), read_row(2), py.load.read_row(3)  # parse_row stays in a comment\n\n"
            "def other(parse_row=None):\n    return parse_row\n\nother(parse_row=4)\ntext = 'parse_row'\n"
        ),
    ]
    assert (done.likely, done.name_only, len(done.files)) == (0, 0, 3)
    call("linux_fs_undo", undo_id=done.undo_id)
    assert read(root, *files) == list(files.values())


def test_a_method_is_renamed_with_its_overrides_and_doubtful_calls_are_listed(root: Path, call: Call) -> None:
    write(
        root,
        {
            "shapes.py": (
                "class Shape:\n    def area_of(self):\n        return 0\n\n\n"
                "class Square(Shape):\n    def area_of(self):\n        return super().area_of() + 1\n\n\n"
                "class Field:\n    def area_of(self):\n        return 2\n\n\n"
                "def known(one: Square):\n    return one.area_of()\n\n\ndef unknown(one):\n    return one.area_of()\n"
            )
        },
    )
    done = call("code_edit", symbol="Shape.area_of", action="rename", new_name="surface")
    (text,) = read(root, "shapes.py")
    assert text.count("surface") == 4
    assert "class Field:\n    def area_of" in text
    assert "shapes.py:21 name_only call: return one.area_of()" in done.detail
    assert done.name_only == 1


def test_an_import_keeps_the_name_where_the_file_means_several_things_by_it(root: Path, call: Call) -> None:
    write(
        root,
        {
            "quick.py": "def sort_it(rows):\n    return rows\n",
            "choose.py": (
                "try:\n    from quick import sort_it\nexcept ImportError:\n    from slow import sort_it\n\nsort_it(1)\n"
            ),
        },
    )
    call("code_edit", symbol="quick.py:sort_it", action="rename", new_name="sort_rows")
    assert read(root, "choose.py") == [
        "try:\n    from quick import sort_rows as sort_it\nexcept ImportError:\n    from slow import sort_it\n\n"
        "sort_it(1)\n"
    ]


def test_strings_are_renamed_only_on_request(root: Path, call: Call) -> None:
    files = {
        "st/target.py": "def send_mail():\n    pass\n",
        "st/test_it.py": "patch('st.target.send_mail')\nprint('please send_mail now')\n",
    }
    write(root, files)
    call("code_edit", symbol="st/target.py:send_mail", action="rename", new_name="post_mail", strings=True)
    assert read(root, "st/test_it.py") == ["patch('st.target.post_mail')\nprint('please send_mail now')\n"]


def test_a_name_that_is_taken_a_keyword_or_no_name_is_refused(root: Path, call: Call) -> None:
    write(
        root,
        {
            "taken.py": "limit = 1\n\n\ndef bounded(x):\n    return min(x, limit)\n\n\n"
            "class Box:\n    def a(self): ...\n    def b(self): ...\n"
        },
    )
    for new in ("limit", "min", "Box"):
        with pytest.raises(Conflict, match=r"taken\.py"):
            call("code_edit", symbol="bounded", action="rename", new_name=new)
    with pytest.raises(Conflict):
        call("code_edit", symbol="Box.a", action="rename", new_name="b")
    for new in ("class", "two words", "1st", ""):
        with pytest.raises(Exception, match=r"word of the language|single name|new_name"):
            call("code_edit", symbol="bounded", action="rename", new_name=new)
    with pytest.raises(NotFound, match="nothing here is called"):
        call("code_edit", symbol="bonded", action="rename", new_name="x1")


def test_what_the_language_finds_by_its_name_keeps_it(root: Path, call: Call) -> None:
    write(
        root,
        {"bag.py": "class Bag:\n    def __len__(self):\n        return 1\n", "Jar.java": "class Jar { Jar() {} }\n"},
    )
    for symbol in ("Bag.__len__", "Jar.java:Jar.Jar"):
        with pytest.raises(InvalidArgument, match="its name from the language"):
            call("code_edit", symbol=symbol, action="rename", new_name="other")


def test_a_symbol_with_several_meanings_is_refused_with_their_places(root: Path, call: Call) -> None:
    write(root, {"one.py": "def twice(): ...\n", "two.py": "x = 1\n\ndef twice(): ...\n"})
    with pytest.raises(InvalidArgument, match=r"one\.py:1, two\.py:3"):
        call("code_edit", symbol="twice", action="rename", new_name="thrice")


def test_a_dry_run_shows_the_diff_and_changes_nothing(root: Path, call: Call) -> None:
    write(root, {"dry.py": "def damp():\n    pass\n"})
    done = call("code_edit", symbol="damp", action="rename", new_name="moist", dry_run=True)
    assert "-def damp():\n+def moist():\n" in done.detail
    assert done.undo_id is None
    assert read(root, "dry.py") == ["def damp():\n    pass\n"]


class Case(NamedTuple):
    """Files in which a plain replacement of the name is right, but for some places."""

    files: dict[str, str]
    old: str
    new: str
    but: tuple[str, str] = ("", "")  # what that makes of a place, and what it must be
    symbol: str = ""


LANGUAGES = {
    "typescript": Case(
        {
            "ts/tools.ts": "export function paintAll(x: number) { return x }\nexport class Pen { a = paintAll(1) }\n",
            "ts/use.ts": (
                "import { paintAll, Pen } from './tools'\nimport * as tools from './tools'\n"
                "const o = { paintAll, other: paintAll(2) }\ntools.paintAll(3)\n"
            ),
        },
        "paintAll",
        "drawAll",
        ("= { drawAll,", "= { paintAll: drawAll,"),
    ),
    "javascript": Case(
        {
            "js/lib.js": "function mixUp(a) { return a }\nmodule.exports = { mixUp }\n",
            "js/main.js": "const { mixUp } = require('./lib')\nconst lib = require('./lib')\nmixUp(1)\nlib.mixUp(2)\n",
        },
        "mixUp",
        "blend",
    ),
    "go": Case(
        {
            "go/go.mod": "module example.com/m\n",
            "go/a/a.go": "package a\n\n// NewLamp makes one.\nfunc NewLamp() int { return 1 }\n",
            "go/b/b.go": 'package b\n\nimport "example.com/m/a"\n\nfunc F() int { return a.NewLamp() }\n',
        },
        "NewLamp",
        "MakeLamp",
        ("// MakeLamp", "// NewLamp"),
    ),
    "rust": Case(
        {
            "rs/Cargo.toml": '[package]\nname = "kiln"\nversion = "0.1.0"\n',
            "rs/src/lib.rs": "pub mod heat;\nuse crate::heat::warm_up;\npub fn go() { warm_up(); heat::warm_up(); }\n",
            "rs/src/heat.rs": "pub fn warm_up() {}\n",
        },
        "warm_up",
        "preheat",
    ),
    "java": Case(
        {
            "java/p/Kettle.java": (
                "package p;\npublic class Kettle {\n  public Kettle() {}\n"
                "  static Kettle of() { return new Kettle(); }\n}\n"
            ),
            "java/q/Use.java": "package q;\nimport p.Kettle;\nclass Use { Kettle k = new Kettle(); }\n",
        },
        "Kettle",
        "Teapot",
        symbol="java/p/Kettle.java:Kettle",
    ),
    "c": Case(
        {
            "c/spin.h": "int spin_up(int rate);\n",
            "c/fields.h": "#define FIELDS int a; \\\n  int b[sizeof(spin_up(2))];\n",
            "c/spin.c": '#include "spin.h"\nint spin_up(int rate) { return rate; }\n',
            "c/main.c": '#include "spin.h"\nint main(void) { return spin_up(1); }\n',
        },
        "spin_up",
        "rotate",
    ),
    "cpp": Case(
        {
            "cpp/gear.hpp": "class Gear {\npublic:\n  Gear();\n  ~Gear();\n  int turn();\n};\n",
            "cpp/gear.cpp": '#include "gear.hpp"\nGear::Gear() {}\nGear::~Gear() {}\nint Gear::turn() { return 1; }\n',
            "cpp/main.cpp": '#include "gear.hpp"\nint main() { Gear one; return one.turn(); }\n',
        },
        "Gear",
        "Wheel",
    ),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_is_renamed(root: Path, call: Call, language: str) -> None:
    case = LANGUAGES[language]
    write(root, case.files)
    call("code_edit", symbol=case.symbol or case.old, action="rename", new_name=case.new)
    plain = {name: text.replace(case.old, case.new) for name, text in case.files.items()}
    expected = [text.replace(*case.but) if case.but[0] else text for text in plain.values()]
    names = [name.replace(f"{case.old}.java", f"{case.new}.java") for name in case.files]
    assert read(root, *names) == expected


def test_a_java_class_takes_its_file_along_and_one_undo_brings_both_back(root: Path, call: Call) -> None:
    files = {
        "moved/Lid.java": "package moved;\npublic class Lid {\n  static int n;\n  enum Kind { A }\n}\n",
        "moved/Pan.java": (
            "package moved;\nimport static moved.Lid.n;\nimport moved.Lid.Kind;\n"
            "class Pan { Lid l; Kind k; int m = n; }\n"
        ),
    }
    write(root, files)
    shown = call("code_edit", symbol="moved/Lid.java:Lid", action="rename", new_name="Cover", dry_run=True)
    assert "rename from moved/Lid.java\nrename to moved/Cover.java\n" in shown.detail
    done = call("code_edit", symbol="moved/Lid.java:Lid", action="rename", new_name="Cover")
    assert not (root / "moved/Lid.java").exists()
    assert read(root, "moved/Cover.java", "moved/Pan.java") == [text.replace("Lid", "Cover") for text in files.values()]
    call("linux_fs_undo", undo_id=done.undo_id)
    assert read(root, *files) == list(files.values())
    assert not (root / "moved/Cover.java").exists()


JAVA = {
    "fam/Base.java": (
        "package fam;\nabstract class Base<T> {\n  int depth;\n  Base() {}\n"
        "  abstract int depth(Base<T> other);\n  int twice(Base<T> other) { return other.depth(this) + depth; }\n}\n"
    ),
    "fam/Impl.java": (
        "package fam;\nclass Impl extends Base<String> {\n  @Override\n  int depth(Base<String> other) { return 1; }\n"
        "  Base<Long> composed() {\n    return new Base<Long>() {\n"
        "      @Override int depth(Base<Long> other) { return 2; }\n    };\n  }\n}\n"
    ),
    "fam/Low.java": (
        "package fam;\nimport java.util.*;\nimport java.util.function.*;\nclass Low extends Impl {\n"
        "  int all(List<Impl> some) { some.forEach(one -> one.composed()); return super.depth(this); }\n"
        "  Function<Base<String>, Integer> f() { return this::depth; }\n}\n"
    ),
}


def test_java_methods_that_override_each_other_are_renamed_together_and_fields_are_not(root: Path, call: Call) -> None:
    write(root, JAVA)
    done = call("code_edit", symbol="fam/Impl.java:Impl.depth", action="rename", new_name="level")
    expected = [text.replace("depth", "level") for text in JAVA.values()]
    expected[0] = expected[0].replace("int level;", "int depth;").replace("+ level;", "+ depth;")
    assert read(root, *JAVA) == expected
    assert done.places == 6
    made = call("code_edit", symbol="fam/Impl.java:Impl.composed", action="rename", new_name="built")
    assert (made.places, made.likely) == (2, 0)  # nothing else has that name, and the file names the class


CPP = {
    "cc/key.h": (
        "namespace cc {\nclass CC_EXPORT Key {\n public:\n  virtual ~Key();\n"
        "  // Subclasses may override weigh().\n  virtual int weigh() const;\n  void lock() CC_LOCKS(mu_);\n};\n}\n"
    ),
    "cc/box.h": (
        "namespace cc {\nclass Key;\nclass Box {\n public:\n  Key* top() const;\n  int all();\n"
        " private:\n  std::vector<Key*> keys_;\n  std::map<int, Key*> by_;\n  std::string name_;\n};\n}\n"
    ),
    "cc/box.cc": (
        '#include "cc/box.h"\n#include "cc/key.h"\nnamespace cc {\n'
        "class Steel : public Key {\n  int weigh() const override { return Key::weigh() + 1; }\n};\n"
        "int Key::weigh() const { return this->weigh(); }\n"
        "int Box::all() {\n  int n = keys_[0]->weigh() + top()->weigh();\n  Key own(n);\n"
        "  for (const auto& pair : by_) n += pair.second->weigh();\n  for (auto* one : keys_) n += one->weigh();\n"
        "  return n + own.weigh();\n}\n}\n"
    ),
    "cc/scale.cc": "namespace cc {\nstruct Scale { int weigh(); };\nint use(Scale* s) { return s->weigh(); }\n}\n",
}


def test_a_method_of_cpp_is_renamed_in_headers_outside_its_class_and_in_overrides(root: Path, call: Call) -> None:
    write(root, CPP)
    done = call("code_edit", symbol="cc/key.h:cc.Key.weigh", action="rename", new_name="load")
    expected = [text.replace("weigh", "load").replace("override load", "override weigh") for text in CPP.values()]
    assert read(root, *CPP) == [*expected[:3], CPP["cc/scale.cc"]]
    assert (done.likely, len(done.files)) == (0, 2)
    call("linux_fs_undo", undo_id=done.undo_id)


def test_a_class_of_cpp_is_renamed_where_it_is_only_declared(root: Path, call: Call) -> None:
    write(root, CPP)
    files = {
        "cc/c.h": "typedef struct cc_key_t cc_key_t;\nvoid cc_use(cc_key_t* one);\n",
        "cc/c.cc": '#include "cc/c.h"\nstruct cc_key_t { int n; };\nvoid cc_use(cc_key_t* one) { one->n = 1; }\n',
    }
    other = "namespace far {\nclass Key { public: Key(); };\nKey::Key() {}\n}\nnamespace cc { class Key { Key(); }; }\n"
    write(root, {**files, "cc/other.cc": other})
    call("code_edit", symbol="cc/key.h:cc.Key", action="rename", new_name="Token")
    assert read(root, "cc/other.cc") == [other]
    assert read(root, *CPP) == [text.replace("Key", "Token") for text in CPP.values()]
    call("code_edit", symbol="cc/c.cc:cc_key_t", action="rename", new_name="cc_token_t")
    assert read(root, *files) == [text.replace("cc_key_t", "cc_token_t") for text in files.values()]


def test_a_rename_in_cpp_is_refused_if_a_type_that_matters_is_unknown(root: Path, call: Call) -> None:
    files = {
        "un/a.h": "class Lamp { public: void shine(); };\nclass Star { public: void shine(); };\n",
        "un/b.cc": '#include "un/a.h"\ntemplate <class T> void on(T& one) {\n  one.shine();\n}\n',
        "un/far.cc": "template <class T> void far(T& one) { one.shine(); }\n",
    }
    write(root, files)
    with pytest.raises(InvalidArgument, match=r"1 places may mean shine.*un/b\.cc:3$"):
        call("code_edit", symbol="un/a.h:Lamp.shine", action="rename", new_name="glow")
    assert read(root, *files) == list(files.values())


GO = {
    "g/go.mod": "module g\n",
    "g/a.go": (
        "package g\n\ntype Walker interface{ Stride(n int) Walker }\ntype Dog struct{ legs []*Leg }\n"
        "type Leg struct{}\ntype Map struct{}\n\n"
        "func (d *Dog) Stride(n int) Walker { return d }\nfunc (m *Map) Stride() {}\n"
        "func (l *Leg) Bend() {}\n"
    ),
    "g/b.go": (
        "package g\n\nfunc use(d *Dog, all map[string]Walker) {\n\tnew(Dog).Stride(1).Stride(2)\n"
        "\tfor _, w := range all {\n\t\tw.Stride(3)\n\t}\n\tfor _, leg := range d.legs {\n\t\tleg.Bend()\n\t}\n}\n"
    ),
}


def test_go_methods_are_renamed_with_the_interfaces_that_they_satisfy(root: Path, call: Call) -> None:
    write(root, GO)
    done = call("code_edit", symbol="g/a.go:Leg.Bend", action="rename", new_name="Flex")
    assert (done.places, done.likely, done.name_only) == (2, 0, 0)
    done = call("code_edit", symbol="g/a.go:Dog.Stride", action="rename", new_name="Step")
    assert (done.places, done.likely, done.name_only) == (6, 0, 0)  # Map's takes something else, but has that name, too
    assert "Stride" not in read(root, "g/b.go")[0]


FOREIGN = {
    "foreign.rs": "struct S;\nimpl std::fmt::Display for S { fn fmt(&self) {} }\nfn f(s: S) { s.fmt(); }\n",
    "Foreign.java": 'class Foreign { @Override public String toString() { return ""; } }\n',
    "foreign.go": 'package main\n\ntype F struct{}\n\nfunc (f F) Error() string { return "" }\n',
    "foreign.ts": "export interface Shape { area(): number }\n",
    "macros.rs": "trait Go { fn forward_go(&self); }\nmacro_rules! m { () => { fn forward_go(&self) {} } }\n",
}


@pytest.mark.parametrize(
    "symbol", ["foreign.rs:S.fmt", "Foreign.toString", "foreign.go:F.Error", "Shape.area", "Go.forward_go"]
)
def test_a_method_whose_name_the_project_did_not_choose_alone_is_refused(root: Path, call: Call, symbol: str) -> None:
    write(root, FOREIGN)
    with pytest.raises(InvalidArgument, match=symbol.rpartition(".")[2]):
        call("code_edit", symbol=symbol, action="rename", new_name="other")
    assert read(root, *FOREIGN) == list(FOREIGN.values())
