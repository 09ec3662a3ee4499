"""Languages are told apart, definitions found, files cut into pieces; whatever a file holds."""

import os
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from llmc_mcp.rag.parse import chunk
from llmc_mcp.rag.parse.chunk import chunks
from llmc_mcp.rag.parse.detect import language_of
from llmc_mcp.rag.parse.doc import doc_of
from llmc_mcp.rag.parse.file import look
from llmc_mcp.rag.parse.grammars import unpack
from llmc_mcp.rag.parse.languages import PARSED
from llmc_mcp.rag.parse.parse import first_error, syntax
from llmc_mcp.rag.parse.queries import ask
from llmc_mcp.rag.parse.symbols import definitions
from llmc_mcp.rag.parse.types import Definition


@pytest.fixture(scope="module", autouse=True)
def grammars() -> None:
    """All at once: one by one each would read the whole archive."""
    unpack(os.environ["LLMC_DATA_DIR"])


def defined(language: str, source: str | bytes) -> list[Definition]:
    tree = syntax(language, source.encode() if isinstance(source, str) else source)
    return definitions(tree, ask(tree).definitions)


def doc(language: str, source: str, one: Definition) -> str:
    """The documentation of a definition, which is read off its text."""
    return doc_of(language, source.encode()[one.span.start : one.span.end].decode())


def kinds(language: str, source: str) -> dict[str, str]:
    """Qualified names and their kinds."""
    return {one.qualname: one.kind for one in defined(language, source)}


@pytest.mark.parametrize(
    ("path", "head", "language"),
    [
        ("a/b.py", b"", "python"),
        ("a.TSX", b"", "tsx"),
        ("x.h", b"int f(void);", "c"),
        ("x.h", b"namespace a {\n", "cpp"),
        ("x.h", b"@interface A : B\n", "objc"),
        ("Makefile", b"", "make"),
        ("run", b"#!/usr/bin/env python3\n", "python"),
        ("run", b"#!/bin/sh -e\n", "bash"),
        ("run.txt", b"hello", ""),
        ("noending", b"", ""),
        ("", b"", ""),
        (".py", b"", "python"),
        ("matrix.m", b"x = [1 2 3];", ""),
    ],
)
def test_a_file_s_language_comes_from_its_name_or_its_first_line(path: str, head: bytes, language: str) -> None:
    assert language_of(path, head) == language


def test_python() -> None:
    source = '''
LIMIT = 3
# Saves things.
@register
class Model(Base):
    """A row.

    More.
    """
    name = Field()

    @property
    def pk(self): ...

    async def save(self,
                   force=False):
        """Write it."""
        def inner(): pass
'''
    found = {one.qualname: one for one in defined("python", source)}
    assert {name: one.kind for name, one in found.items()} == {
        "LIMIT": "constant", "Model": "class", "Model.name": "field", "Model.pk": "method", "Model.save": "method",
        "Model.save.inner": "function",
    }  # fmt: skip
    model, save = found["Model"], found["Model.save"]
    assert (model.span.first_line, model.span.last_line) == (3, 18), "with its decorator and the comment above"
    assert source.encode()[model.span.start :].startswith(b"# Saves")
    assert (model.signature, doc("python", source, model)) == ("class Model(Base)", "A row.")
    assert (save.signature, doc("python", source, save)) == ("async def save(self, force=False)", "Write it.")
    assert [one.parent for one in found.values()] == [-1, -1, 1, 1, 1, 4]


def test_javascript() -> None:
    source = """
const fs = require("fs");
export const add = async (a, b) => { return a + b };
export default class Shape extends Base { area() { return 1 } static of = () => new Shape() }
Shape.prototype.scale = function (by) {};
exports.run = function () {};
function* walk() {}
"""
    assert kinds("javascript", source) == {
        "add": "function", "Shape": "class", "Shape.area": "method", "Shape.of": "method", "Shape.scale": "method",
        "run": "function", "walk": "function",
    }  # fmt: skip


@pytest.mark.parametrize("language", ["typescript", "tsx"])
def test_typescript(language: str) -> None:
    source = """
/** What it does. */
@Component()
export class A<T> implements I { private x: number = 1; constructor(a: string) {} bar = () => 1 }
interface I { m(): void }
type Id = string
enum Color { Red }
namespace N { export function q(): void {} }
declare module "lib" { function z(): void }
"""
    assert kinds(language, source) == {
        "A": "class", "A.x": "field", "A.constructor": "method", "A.bar": "method", "I": "interface", "I.m": "method",
        "Id": "type", "Color": "enum", "N": "namespace", "N.q": "function", "lib": "namespace", "lib.z": "function",
    }  # fmt: skip
    assert doc(language, source, defined(language, source)[0]) == "What it does."


def test_go() -> None:
    source = """package a
// Server serves.
type Server struct { x int }
type ( Doer interface { Do() }
  Id = int )
func (s *Server[T]) Run(x int) error { return nil }
func New() *Server { return nil }
const ( A = 1
  B = 2 )
var c, d = 1, 2
"""
    assert kinds("go", source) == {
        "Server": "struct", "Doer": "interface", "Doer.Do": "method", "Id": "type", "Server.Run": "method",
        "New": "function", "A": "constant", "B": "constant", "c": "variable", "d": "variable",
    }  # fmt: skip
    server = defined("go", source)[0]
    assert doc("go", source, server) == "Server serves."
    assert (server.span.first_line, server.span.last_line) == (2, 3)


def test_rust() -> None:
    source = """
/// A point.
#[derive(Debug)]
pub struct Point<T> { x: T }
impl<T> Shape for Point<T> { const K: u8 = 1; fn area(&self) -> u8 { 1 } }
pub trait Shape { fn area(&self) -> u8; }
mod inner { pub fn f() {} }
enum E { A }
macro_rules! m { () => {} }
static S: u8 = 1;
"""
    found = defined("rust", source)
    assert [(one.qualname, one.kind) for one in found] == [
        ("Point", "struct"), ("Point", "impl"), ("Point.K", "constant"), ("Point.area", "method"), ("Shape", "trait"),
        ("Shape.area", "method"), ("inner", "module"), ("inner.f", "function"), ("E", "enum"), ("m", "macro"),
        ("S", "constant"),
    ]  # fmt: skip
    assert (found[0].span.first_line, found[0].signature) == (2, "pub struct Point<T>")
    assert doc("rust", source, found[0]) == "A point."


def test_java() -> None:
    source = """
class A<T> extends B { static final int X = 1, Y = 2; A() {} @Override public <T> void m(int a) throws E {} }
interface I { void n(); }
enum E { ONE; void q() {} }
record R(int x) {}
@interface An { String value(); }
"""
    assert kinds("java", source) == {
        "A": "class", "A.X": "field", "A.Y": "field", "A.A": "method", "A.m": "method", "I": "interface",
        "I.n": "method", "E": "enum", "E.ONE": "field", "E.q": "method", "R": "class", "An": "interface",
        "An.value": "method",
    }  # fmt: skip


def test_c() -> None:
    source = """
#define MAX(a, b) a
/* Adds. */
static int *add(int a) { return 0; }
char **names(void) { return 0; }
struct point { int x; };
typedef struct { int a; } box_t;
typedef int (*callback)(int);
enum color { RED };
int declared(int);
static int counter = 0;
"""
    assert kinds("c", source) == {
        "MAX": "macro", "add": "function", "names": "function", "point": "struct", "box_t": "type",
        "callback": "type", "color": "enum", "declared": "prototype", "counter": "variable",
    }  # fmt: skip


def test_cpp() -> None:
    source = """
namespace a::b {
template <typename T>
class Foo : public Bar { public: Foo(); ~Foo() {} int size() const { return 1; } void decl(int); };
template <class T> T& Foo<T>::get(int x) { return x; }
Foo::operator bool() const { return true; }
bool operator==(const Foo& x, const Foo& y) { return true; }
using Id = int;
}
TEST(FooTest, Gets) { }
"""
    found = defined("cpp", source)
    assert [(one.qualname, one.kind) for one in found] == [
        ("a.b", "namespace"), ("a.b.Foo", "class"), ("a.b.Foo.Foo", "prototype"), ("a.b.Foo.~Foo", "method"),
        ("a.b.Foo.size", "method"), ("a.b.Foo.decl", "prototype"), ("a.b.Foo.get", "method"),
        ("a.b.Foo.operator bool() const", "method"), ("a.b.operator==", "function"), ("a.b.Id", "type"),
        ("FooTest.Gets", "test"),
    ]  # fmt: skip
    assert found[1].span.first_line == 3, "with template <…>"


def test_kotlin() -> None:
    source = """
class A(val x: Int) : B() {
    val p: Int = 1
    companion object {
        fun make(): A { return A(1) }
    }
}
object O {
    fun z(): Int { return 2 }
}
fun String.shout(a: Int): Int = 1
interface I {
    fun f()
}
enum class E {
    ONE, TWO
}
typealias T = Int
val top = 1
"""
    assert kinds("kotlin", source) == {
        "A": "class", "A.p": "property", "A.make": "method", "O": "object", "O.z": "method",
        "String.shout": "function", "I": "interface", "I.f": "method", "E": "enum", "E.ONE": "field",
        "E.TWO": "field", "T": "type", "top": "constant",
    }  # fmt: skip


def test_scala() -> None:
    source = """
trait F[A] extends G { def m(x: Int): Int; val v: Int = 1; type T = Int }
object O { implicit class Ops(x: Int) { def z = 1 } }
case class C(a: Int)
given foo: Ordering[Int] with
  def c = 1

extension (s: String)
  def up: String = s
enum E { case A, B }
"""
    assert kinds("scala", source) == {
        "F": "trait", "F.m": "method", "F.v": "field", "F.T": "type", "O": "object", "O.Ops": "class",
        "O.Ops.z": "method", "C": "class", "foo": "given", "foo.c": "method", "String": "extension",
        "String.up": "method", "E": "enum", "E.A": "field", "E.B": "field",
    }  # fmt: skip


def test_csharp() -> None:
    source = """
namespace N.M {
  /// <summary>Holds.</summary>
  [Attr]
  public class A<T> : B { const int K = 1; public string P { get; set; } A() {} int M(int x) { return 1; } }
  struct S {} interface I { void Q(); } enum E { One } record R(int X); delegate int D(int x);
}
"""
    assert kinds("csharp", source) == {
        "N.M": "namespace", "N.M.A": "class", "N.M.A.K": "field", "N.M.A.P": "property", "N.M.A.A": "method",
        "N.M.A.M": "method", "N.M.S": "struct", "N.M.I": "interface", "N.M.I.Q": "method", "N.M.E": "enum",
        "N.M.E.One": "field", "N.M.R": "class", "N.M.D": "type",
    }  # fmt: skip
    held = defined("csharp", source)[1]
    assert (doc("csharp", source, held), held.signature) == ("Holds.", "public class A<T> : B")


def test_ruby() -> None:
    source = """
module A
  # Does it.
  class B < C
    attr_accessor :x, :y
    K = 1
    def m?(a); end
    def self.s; end
    class << self
      def t; end
    end
  end
  def helper; end
end
class A::D; end
"""
    assert kinds("ruby", source) == {
        "A": "module", "A.B": "class", "A.B.x": "property", "A.B.y": "property", "A.B.K": "constant",
        "A.B.m?": "method", "A.B.s": "method", "A.B.t": "method", "A.helper": "method", "A.D": "class",
    }  # fmt: skip


def test_php() -> None:
    source = """<?php
namespace A\\B;
function f(int $x): int { return 1; }
abstract class C extends D { use T; const K = 1; public $p = 1; /** Runs. @return x */ public function m() {} }
interface I { function x(); }
trait T { function y() {} }
enum S: string { case One = 'a'; }
"""
    assert kinds("php", source) == {
        "f": "function", "C": "class", "C.K": "constant", "C.p": "property", "C.m": "method", "I": "interface",
        "I.x": "method", "T": "trait", "T.y": "method", "S": "enum", "S.One": "field",
    }  # fmt: skip


def test_swift() -> None:
    source = """
public class A<T>: B {
    let x: Int = 1
    init(a: Int) {}
    func m(_ a: Int) -> Int { 1 }
}
struct S {}
enum E { case one }
extension A { func z() {} }
protocol P { func r() }
func top() {}
"""
    assert kinds("swift", source) == {
        "A": "extension", "A.x": "property", "A.init": "method", "A.m": "method", "S": "struct", "E": "enum",
        "E.one": "field", "A.z": "method", "P": "interface", "P.r": "method", "top": "function",
    }  # fmt: skip


def test_lua() -> None:
    source = """
local json = require("json")
local M = {}
--- Greets.
function M.greet:loudly(x) end
M.run = function() end
local function helper() end
local h = function() end
return M
"""
    assert kinds("lua", source) == {
        "M": "constant", "M.greet.loudly": "method", "M.run": "method", "helper": "function", "h": "function",
    }  # fmt: skip
    assert doc("lua", source, defined("lua", source)[1]) == "Greets."


def test_bash() -> None:
    source = "# Says it.\nsay() { local x=1; }\nfunction other { :; }\nNAME=1\nexport PATH_TO=2\n"
    assert kinds("bash", source) == {
        "say": "function", "other": "function", "NAME": "constant", "PATH_TO": "constant"
    }  # fmt: skip


def test_haskell() -> None:
    source = """module A where
-- | Counts.
count :: Int -> Int
count 0 = 1
count n = n
  where g y = y
data D a = X { fld :: a } | Y
class Cl a where
  m :: a -> a
instance Cl Int where
  m x = x
x <+> y = x
"""
    found = {one.qualname: one for one in defined("haskell", source)}
    assert {name: one.kind for name, one in found.items()} == {
        "count": "function", "D": "type", "D.X": "field", "D.X.fld": "field", "D.Y": "field", "Cl": "instance",
        "Cl.m": "method", "<+>": "function",
    }  # fmt: skip
    count = found["count"]
    assert (count.signature, doc("haskell", source, count)) == ("count :: Int -> Int", "Counts.")
    assert (count.span.first_line, count.span.last_line) == (2, 6), "its type and all of its equations"


def test_elixir() -> None:
    source = '''
defmodule A.B do
  @doc """
  Doubles.
  """
  @spec f(integer) :: integer
  def f(0), do: 0
  def f(x) when x > 1, do: x
  defp g, do: 1
  defmacro m(x) do
    x
  end
  @type t :: integer
end
defprotocol P do
  def s(x)
end
defimpl P, for: Integer do
end
'''
    found = defined("elixir", source)
    assert [(one.qualname, one.kind) for one in found] == [
        ("A.B", "module"), ("A.B.f", "function"), ("A.B.g", "function"), ("A.B.m", "macro"), ("A.B.t", "type"),
        ("P", "interface"), ("P.s", "method"), ("P", "impl"),
    ]  # fmt: skip
    assert (found[1].span.first_line, found[1].span.last_line) == (3, 8)
    assert doc("elixir", source, found[1]) == "Doubles."


def test_zig() -> None:
    source = """
const std = @import("std");
/// Holds.
pub const S = struct { x: i32, pub fn m(self: S) void {} };
const E = enum { a };
pub fn f(a: i32) i32 { return a; }
test "it works" { }
"""
    assert kinds("zig", source) == {
        "S": "struct", "S.m": "method", "E": "enum", "f": "function", "it works": "test"
    }  # fmt: skip


def test_sql() -> None:
    source = """
-- People.
CREATE TABLE IF NOT EXISTS app.users (id INT);
CREATE OR REPLACE FUNCTION total(a int) RETURNS int AS $$ SELECT 1 $$ LANGUAGE sql;
CREATE VIEW v AS SELECT 1;
CREATE INDEX i ON users (id);
CREATE TRIGGER t BEFORE INSERT ON users FOR EACH ROW EXECUTE FUNCTION total();
"""
    assert kinds("sql", source) == {
        "users": "table", "total": "function", "v": "view", "i": "index", "t": "trigger"
    }  # fmt: skip
    assert doc("sql", source, defined("sql", source)[0]) == "People."


def test_schemas_and_build_files() -> None:
    proto = (
        'syntax = "proto3";\n'
        "// Holds.\nmessage M { string x = 1; enum K { A = 0; } }\nservice S { rpc Get(M) returns (M); }\n"
    )
    assert kinds("proto", proto) == {
        "M": "struct", "M.K": "enum", "S": "interface", "S.Get": "method"
    }  # fmt: skip
    graphql = "type Query { a: Int }\ninput In { a: Int }\nquery Foo { a }\nfragment F on T { a }\n"
    assert kinds("graphql", graphql) == {"Query": "type", "In": "type", "Foo": "function", "F": "fragment"}
    hcl = 'resource "aws_s3_bucket" "logs" { bucket = "x" }\nvariable "region" {}\n'
    assert kinds("hcl", hcl) == {"aws_s3_bucket.logs": "block", "region": "block"}
    assert kinds("make", "# Builds.\nall: x\n\techo\nVAR := 1\n") == {"all": "target", "VAR": "constant"}


def test_documents_have_sections() -> None:
    markdown = "# Guide\ntext\n## Install it\nmore\n\n## Use\nlast\n"
    found = defined("markdown", markdown)
    assert [(one.qualname, one.kind, one.span.first_line, one.span.last_line) for one in found] == [
        ("Guide", "section", 1, 7), ("Guide > Install it", "section", 3, 5), ("Guide > Use", "section", 6, 7),
    ]  # fmt: skip
    found = defined("rst", "Title\n=====\n\ntext\n\nSub\n---\n\nmore\n")
    assert [(one.name, one.span.first_line, one.span.last_line) for one in found] == [("Title", 1, 5), ("Sub", 6, 9)]


@pytest.mark.parametrize("language", sorted(PARSED))
def test_every_language_takes_anything(language: str) -> None:
    chaos = random.Random(language)
    words = [
        b"class ",
        b"def f(",
        b"{",
        b"}",
        b"\n",
        b"\r\n",
        b"\0",
        b"\xff\xfe",
        b"<",
        b"'",
        b'"',
        b"\t",
        b"if x:",
        b"#",
    ]
    for source in (
        b"", b"\n", b"\xef\xbb\xbf", b"\0" * 100, chaos.randbytes(3_000), b"(" * 5_000, b"\n \n" * 500,
        b"".join(chaos.choices(words, k=2_000)),
    ):  # fmt: skip
        found = defined(language, source)
        assert all(one.parent < index for index, one in enumerate(found))
        check_chunks(source, found)


def test_a_hostile_file_costs_a_bounded_time_and_has_no_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmc_mcp.rag.parse.parse.PARSE_SECONDS", 0.0)
    late = syntax("python", b"def f(): pass\n" * 1_000)
    assert not late.complete
    assert definitions(late, ask(late).definitions) == []
    assert first_error(late) == 0, "what was not read can't be called broken"
    monkeypatch.undo()
    assert not syntax("java", b"a<" * 100_000).complete
    rubble = look("a.js", b"[{\n" * 60_000)
    assert (rubble.definitions, rubble.broken_line) == ([], 0)


def test_texts_that_were_parsed_are_not_kept_in_memory() -> None:
    source = b"def f(value):\n    return value + 1\n\n" * 3_000
    look("a.py", source, with_references=False)
    tracemalloc.start()
    try:
        for _ in range(5):
            look("a.py", source, with_references=False)
        assert tracemalloc.get_traced_memory()[0] < 3 * len(source)
    finally:
        tracemalloc.stop()


def test_bom_crlf_and_other_encodings_keep_their_lines() -> None:
    found = defined("python", b"\xef\xbb\xbfx = 1\r\n\r\ndef caf\xe9():\r\n    pass\r\n")
    assert [(one.name, one.span.first_line, one.span.last_line) for one in found][-1][1:] == (3, 4)
    parsed = look("a.py", "def größe(): pass\n".encode())
    assert parsed.definitions[0].name == "größe"


@pytest.mark.parametrize(
    ("source", "line"),
    [("x = 1\n", 0), ("x = 1\ny = (\n", 2), ("def f():\n    return 1 +\n", 2), ("a\nb\nc d e\n", 3), ("", 0)],
)
def test_the_first_syntax_error_is_told_by_its_line(source: str, line: int) -> None:
    assert first_error(syntax("python", source.encode())) == line


def check_chunks(source: bytes, found: list[Definition]) -> None:
    """Every line that is not blank lies in exactly one piece, and pieces are in order."""
    pieces = chunks(source, found)
    at = 0
    for piece in pieces:
        assert piece.span.start >= at
        assert not source[at : piece.span.start].strip(), "what lies between pieces is blank"
        assert source[piece.span.start : piece.span.end].strip()
        assert source[: piece.span.start].count(b"\n") + 1 == piece.span.first_line
        assert source[: piece.span.end].rstrip(b"\n").count(b"\n") + 1 >= piece.span.last_line
        at = piece.span.end
    assert not source[at:].strip()


def test_small_definitions_are_whole_and_tiny_neighbours_together() -> None:
    body = "    call_something_with_a_name_that_is_long_enough()\n" * 12
    source = f"import os\nX = 1\n\n\ndef one():\n{body}\n\ndef two():\n{body}"
    found = defined("python", source)
    pieces = chunks(source.encode(), found)
    check_chunks(source.encode(), found)
    texts = [source[piece.span.start : piece.span.end] for piece in pieces]
    assert [text.startswith(("import", "def two")) for text in texts] == [True, True], "the imports join what follows"
    assert [found[piece.definition].name if piece.definition >= 0 else "" for piece in pieces] == ["", "two"]


def test_a_big_class_is_its_head_and_its_methods_and_a_big_function_its_parts() -> None:
    long = "".join(f"        step_{n} = compute({n}, with_a_rather_long_argument={n})\n\n" for n in range(120))
    method = "    def small(self):\n" + "        do_something_that_is_long_enough_to_stand_alone()\n" * 12
    source = f'class Big:\n    """Doc."""\n    name = 1\n\n{method}\n    def huge(self):\n{long}'
    found = defined("python", source)
    pieces = chunks(source.encode(), found)
    check_chunks(source.encode(), found)
    owners = [found[piece.definition].qualname for piece in pieces]
    assert owners[:2] == ["Big", "Big.huge"] or owners[:3] == ["Big", "Big.small", "Big.huge"]
    assert owners.count("Big.huge") >= 4
    assert all(piece.span.end - piece.span.start <= chunk.TARGET_BYTES for piece in pieces)


def test_the_end_of_a_big_function_is_not_joined_with_the_next_function() -> None:
    source = (
        "def big():\n" + "    call_something_long_enough()\n" * 90 + "    return 1\n\n\ndef next_one():\n    return 2\n"
    )
    found = defined("python", source)
    owners = [found[piece.definition].name for piece in chunks(source.encode(), found)]
    assert owners == ["big", "big", "next_one"]


def test_a_definition_takes_its_export_with_it_but_not_the_call_that_it_stands_in() -> None:
    source = 'export const f = () => {\n}\ndescribe("x", () => {\n  const g = () => 1\n\n  h(g)\n})\n'
    spans = [
        (one.name, one.span.first_line, one.span.last_line, one.span.start) for one in defined("javascript", source)
    ]
    assert spans == [("f", 1, 2, 0), ("g", 4, 4, source.index("const g"))]


def test_text_without_a_grammar_is_cut_at_its_lines() -> None:
    source = "".join(f"paragraph {n} says something of some length to the reader\n\n" for n in range(300)).encode()
    parsed = look("notes.txt", source)
    assert (parsed.language, parsed.definitions) == ("", [])
    assert len(parsed.chunks) > 5
    check_chunks(source, [])


def test_a_gigantic_line_is_cut_into_pieces_and_not_parsed() -> None:
    source = "var é=1;".encode() * 50_000
    parsed = look("app.min.js", source)
    assert parsed.definitions == []
    check_chunks(source, [])
    assert all(source[piece.span.start : piece.span.end].decode() for piece in parsed.chunks), "no character is cut"
    assert max(piece.span.end - piece.span.start for piece in parsed.chunks) <= chunk.TARGET_BYTES


def test_deep_nesting_needs_no_recursion() -> None:
    source = "function f() {\n" * 1_500 + "}\n" * 1_500
    parsed = look("deep.js", source.encode())
    assert len(parsed.definitions) == 1_500
    assert max(len(one.qualname) for one in parsed.definitions) < 400, "names of nested things are bounded"
    check_chunks(source.encode(), parsed.definitions)


@pytest.mark.parametrize("writable", [True, False])
def test_grammars_need_neither_a_network_nor_a_writable_home(tmp_path: Path, writable: bool) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if not writable:
        home = home / "file"
        home.write_text("not a folder: root, too, can't write into it")
    code = (
        "import os, socket; socket.socket = None\n"
        "from llmc_mcp.rag.parse.file import look; print(look('a.py', b'def f(): pass').definitions[0].name)\n"
        "print(os.environ['SEMBLE_GRAMMARS_CACHE_DIR'])"
    )
    environ = {
        "HOME": str(home),
        "LLMC_DATA_DIR": str(home / "data"),
        "PATH": os.environ["PATH"],
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    name, place = done.stdout.split()
    assert name == "f"
    assert Path(place).is_relative_to(home) == writable
    assert Path(place).exists() == writable, "what can't be kept is gone with the process"
