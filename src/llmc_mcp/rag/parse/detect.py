"""Which language a file is in, by its name and, where that says nothing, by its first line."""

import re

_BY_ENDING = {
    ending: language
    for language, endings in {
        "asciidoc": "adoc asciidoc",
        "astro": "astro",
        "bash": "sh bash zsh ksh bats ebuild",
        "batch": "bat cmd",
        "c": "c h",
        "clojure": "clj cljs cljc edn",
        "cmake": "cmake",
        "cpp": "cc cpp cxx c++ hh hpp hxx h++ ipp inl tcc tpp cu cuh ino",
        "csharp": "cs csx",
        "css": "css",
        "dart": "dart",
        "dockerfile": "dockerfile",
        "elixir": "ex exs",
        "erlang": "erl hrl",
        "fortran": "f90 f95 f03 f08",
        "go": "go",
        "graphql": "graphql gql",
        "groovy": "groovy gradle",
        "haskell": "hs",
        "hcl": "tf hcl tfvars",
        "heex": "heex",
        "html": "html htm xhtml",
        "ini": "ini",
        "java": "java",
        "javascript": "js jsx mjs cjs",
        "json": "json",
        "json5": "json5",
        "jsonc": "jsonc",
        "jsonnet": "jsonnet libsonnet",
        "julia": "jl",
        "kdl": "kdl",
        "kotlin": "kt kts",
        "latex": "tex sty cls",
        "lua": "lua",
        "make": "mk",
        "markdown": "md markdown mdx",
        "nix": "nix",
        "objc": "m mm",
        "ocaml": "ml",
        "org": "org",
        "perl": "pl pm",
        "php": "php phtml",
        "powershell": "ps1 psm1",
        "properties": "properties",
        "proto": "proto",
        "python": "py pyi pyw",
        "r": "r",
        "racket": "rkt",
        "rst": "rst",
        "ruby": "rb rake gemspec ru",
        "rust": "rs",
        "scala": "scala sc sbt",
        "scheme": "scm ss",
        "scss": "scss",
        "solidity": "sol",
        "sql": "sql ddl",
        "starlark": "bzl star",
        "svelte": "svelte",
        "swift": "swift",
        "toml": "toml",
        "tsx": "tsx",
        "typescript": "ts mts cts",
        "typst": "typ",
        "vim": "vim",
        "vue": "vue",
        "wat": "wat",
        "xml": "xml xsd xsl svg",
        "yaml": "yaml yml",
        "zig": "zig zon",
    }.items()
    for ending in endings.split()
}
_BY_NAME = {
    "dockerfile": "dockerfile",
    "containerfile": "dockerfile",
    "makefile": "make",
    "gnumakefile": "make",
    "justfile": "just",
    "cmakelists.txt": "cmake",
    "rakefile": "ruby",
    "gemfile": "ruby",
    "guardfile": "ruby",
    "vagrantfile": "ruby",
    "jenkinsfile": "groovy",
    "build": "starlark",
    "build.bazel": "starlark",
    "workspace": "starlark",
    "cargo.lock": "toml",
    "poetry.lock": "toml",
    "uv.lock": "toml",
    ".bashrc": "bash",
    ".zshrc": "bash",
    ".profile": "bash",
}
_BY_INTERPRETER = (
    (re.compile(rb"python|pypy"), "python"),
    (re.compile(rb"\b(ba|z|k|da)?sh\b|bats"), "bash"),
    (re.compile(rb"node|deno|bun"), "javascript"),
    (re.compile(rb"ruby"), "ruby"),
    (re.compile(rb"perl"), "perl"),
    (re.compile(rb"php"), "php"),
    (re.compile(rb"lua"), "lua"),
    (re.compile(rb"elixir"), "elixir"),
    (re.compile(rb"runghc|stack"), "haskell"),
)
_CPP_HEADER = re.compile(rb"^[ \t]*(class|namespace|template|using|public:|private:)\b|\bstd::|^#include <\w+>", re.M)
_OBJC_HEADER = re.compile(rb"^[ \t]*@(interface|protocol|class|import)\b|^#import\b", re.M)


def language_of(path: str, head: bytes) -> str:
    """The name of the grammar for a file, from its path and its first bytes; "" where there is none."""
    name = path.rpartition("/")[2].lower()
    if language := _BY_NAME.get(name):
        return language
    ending = name.rpartition(".")[2] if "." in name else ""
    language = _BY_ENDING.get(ending, "")
    if ending == "h":
        return "objc" if _OBJC_HEADER.search(head) else "cpp" if _CPP_HEADER.search(head) else "c"
    if ending == "m" and not _OBJC_HEADER.search(head):
        return ""  # MATLAB, Mercury, Mathematica
    if not language and head.startswith(b"#!"):
        return _interpreted(head.split(b"\n", 1)[0])
    return language


def _interpreted(shebang: bytes) -> str:
    return next((language for pattern, language in _BY_INTERPRETER if pattern.search(shebang)), "")
