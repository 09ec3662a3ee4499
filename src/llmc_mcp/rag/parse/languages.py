"""Everything that differs from language to language, one entry each: to add a language, add one here.

An entry says how files of the language are recognised, what a definition looks like (a tree-sitter query), how its
comments begin, and by which rules its names are looked up. A language that scopes and types are followed in has a
`bind_…` module as well (references.py).

In a query the capture around a definition is its kind (`@function`); a pattern may also capture:
  @name     the name; in a `dotted` language, what precedes the last dot or colon is the owner
  @owner    what the definition belongs to without standing inside it (the receiver of a Go method)
  @value    the node that holds the body, if it is not in the definition's own field "body"
  @comment  a comment: directly above a definition it belongs to it and documents it
  @above    an attribute or annotation, which precedes what it applies to
  @wrap     a node around a single definition that belongs to it: decorators, `export`, `template <…>`
  @keyword  a word that decides the kind, by the language's `keywords`; with any other word there is no definition
A match of kind `ignore` is not a definition, whatever later patterns say: an import is not a constant.
A function inside a type is a method; the patterns need not say so.
"""

from typing import Literal

import msgspec

TYPES = frozenset(
    ["class", "struct", "union", "interface", "trait", "enum", "impl", "extension", "instance", "object", "given"]
)  # have methods


class Language(msgspec.Struct, frozen=True):
    """One language. Words in `endings` and `file_names` are separated by spaces and in lower case."""

    # Definitions
    query: str = ""  # empty for a language that is recognised, and searched as text
    owners: frozenset[str] = TYPES  # a function directly inside one of these kinds is a method
    dotted: bool = False  # names are written with their owner: Foo::bar, M.f
    docstring: bool = False  # the first string in a body is the documentation
    bodies: frozenset[str] = frozenset()  # node types that end a signature, where the grammar has no field "body"
    keywords: dict[str, str] = {}  # what a call of this name defines: defmodule → module
    equations: bool = False  # adjacent definitions of one name are one function: f 0 = …, f n = …
    sections: bool = False  # a heading's section extends to the next heading

    # Files
    endings: str = ""
    file_names: str = ""
    shebang: str = ""  # regular expression; the first language of the table that matches is chosen
    is_document: bool = False  # belongs to the search scope "docs"
    is_code: bool = True  # False: names in it are not references to definitions
    line_comment: str = ""  # what begins one, besides //
    # Errors to report after an edit: all, only those that the edit added (macros, dialects and templates make the
    # grammar report errors in valid code), or none.
    syntax_check: Literal["all", "new", "none"] = "all"

    # Tokens
    separator: str = r"\?\.|\.|::"  # regular expression: between a receiver and an attribute
    literals: bool = False  # a type and braces are a value: Point{1, 2}
    type_arguments: bool = False  # a call may have type arguments: f<T>(x)
    macro_mark: str = ""  # may follow the name in a call: println!(…)
    definers: frozenset[str] = frozenset()  # keywords that precede the name of a function or class

    # Names across files
    family: str = ""  # languages of one family use each other's definitions
    imports: Literal["", "python", "script", "header", "folder", "rust", "class"] = ""  # what an import names
    implicit_this: bool = False  # a method sees the names of its class, inherited ones included, without a receiver
    calls_apart: bool = False  # what is called is never a field, and what is not is never a method
    methods_in_folder: bool = False  # a type's methods may be defined in other files of its folder
    shares_folder: bool = False  # files of one folder see each other's names
    unbound_is_external: bool = False  # a name that nothing binds is built in or of another project
    modules_are_named: bool = False  # a function of a module is called by the module's name or imported by its own


_JAVASCRIPT = """
(function_declaration name: (_) @name) @function
(generator_function_declaration name: (_) @name) @function
(method_definition name: [(property_identifier) (private_property_identifier) (string)] @name) @function
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)] @value) @function
(assignment_expression left: (member_expression) @name right: [(arrow_function) (function_expression)] @value) @function
(pair key: (property_identifier) @name value: [(arrow_function) (function_expression)] @value) @function
(variable_declarator name: (identifier) @name value: (call_expression function: (identifier) @keyword)) @call
(program (lexical_declaration (variable_declarator name: (identifier) @name) @constant))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name) @constant)))
(comment) @comment
[(export_statement) (lexical_declaration) (variable_declaration) (expression_statement)] @wrap
"""
_TYPESCRIPT = (
    _JAVASCRIPT
    + """
(class_declaration name: (_) @name) @class
(abstract_class_declaration name: (_) @name) @class
(interface_declaration name: (_) @name) @interface
(type_alias_declaration name: (_) @name) @type
(enum_declaration name: (_) @name) @enum
(internal_module name: (_) @name) @namespace
(module name: (_) @name) @namespace
(function_signature name: (_) @name) @function
(method_signature name: (_) @name) @function
(abstract_method_signature name: (_) @name) @function
(public_field_definition name: (_) @name value: [(arrow_function) (function_expression)] @value) @function
(public_field_definition name: (_) @name) @field
(decorator) @above
(ambient_declaration) @wrap
"""
)
_C = """
(function_definition declarator: (function_declarator declarator: (_) @name)) @function
(function_definition declarator: (_ declarator: (function_declarator declarator: (_) @name))) @function
(function_definition declarator: (_ declarator: (_ declarator: (function_declarator declarator: (_) @name)))) @function
(struct_specifier name: (_) @name body: (_)) @struct
(union_specifier name: (_) @name body: (_)) @union
(enum_specifier name: (_) @name body: (_)) @enum
(type_definition declarator: (type_identifier) @name) @type
(type_definition declarator: (_ declarator: (type_identifier) @name)) @type
(type_definition
  declarator: (function_declarator declarator: (_ (pointer_declarator declarator: (type_identifier) @name)))) @type
(preproc_def name: (_) @name value: (_)) @macro
(preproc_function_def name: (_) @name) @macro
(translation_unit (declaration declarator: (init_declarator declarator: (identifier) @name)) @variable)
(translation_unit (declaration declarator: (function_declarator declarator: (identifier) @name)) @prototype)
(translation_unit
  (declaration declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name)))
  @prototype)
(comment) @comment
"""
_REQUIRE = {"require": "ignore"}
LANGUAGES: dict[str, Language] = {
    "python": Language(
        """
(class_definition name: (_) @name) @class
(function_definition name: (_) @name) @function
(type_alias_statement left: (type (identifier) @name)) @type
(module (expression_statement (assignment left: (identifier) @name)) @variable)
(class_definition body: (block (expression_statement (assignment left: (identifier) @name)) @field))
(comment) @comment
(decorated_definition) @wrap
""",
        docstring=True,
        endings="py pyi pyw",
        shebang=r"python|pypy",
        line_comment="#",
        unbound_is_external=True,
        imports="python",
        modules_are_named=True,
        separator=r"\.",
        definers=frozenset({"def", "class"}),
    ),
    "bash": Language(
        """
(function_definition name: (_) @name) @function
(program (variable_assignment name: (_) @name) @variable)
(program (declaration_command (variable_assignment name: (_) @name)) @variable)
(comment) @comment
""",
        endings="sh bash zsh ksh bats ebuild",
        file_names=".bashrc .zshrc .profile",
        shebang=r"\b(ba|z|k|da)?sh\b|bats",
        line_comment="#",
    ),
    "javascript": Language(
        _JAVASCRIPT
        + """
(class_declaration name: (_) @name) @class
(field_definition property: (_) @name value: [(arrow_function) (function_expression)] @value) @function
(field_definition property: (_) @name) @field
(decorator) @above
""",
        dotted=True,
        keywords=_REQUIRE,
        endings="js jsx mjs cjs",
        shebang=r"node|deno|bun",
        unbound_is_external=True,
        family="script",
        imports="script",
    ),
    "typescript": Language(
        _TYPESCRIPT,
        dotted=True,
        keywords=_REQUIRE,
        endings="ts mts cts",
        unbound_is_external=True,
        family="script",
        imports="script",
        type_arguments=True,
    ),
    "tsx": Language(
        _TYPESCRIPT,
        dotted=True,
        keywords=_REQUIRE,
        endings="tsx",
        unbound_is_external=True,
        family="script",
        imports="script",
        type_arguments=True,
    ),
    "go": Language(
        """
(function_declaration name: (_) @name) @function
(method_declaration
  receiver: (parameter_list (parameter_declaration type: [
    (type_identifier) @owner
    (generic_type type: (_) @owner)
    (pointer_type (type_identifier) @owner)
    (pointer_type (generic_type type: (_) @owner))]))
  name: (_) @name) @method
(type_spec name: (_) @name type: (struct_type)) @struct
(type_spec name: (_) @name type: (interface_type)) @interface
(type_spec name: (_) @name) @type
(type_alias name: (_) @name) @type
(method_elem name: (_) @name) @method
(source_file (const_declaration (const_spec name: (_) @name) @constant))
(source_file (var_declaration (var_spec name: (_) @name) @variable))
(source_file (var_declaration (var_spec_list (var_spec name: (_) @name) @variable)))
(comment) @comment
[(type_declaration) (const_declaration) (var_declaration)] @wrap
""",
        endings="go",
        methods_in_folder=True,
        unbound_is_external=True,
        literals=True,
        shares_folder=True,
        imports="folder",
        modules_are_named=True,
        separator=r"\.",
    ),
    "rust": Language(
        """
(function_item name: (_) @name) @function
(function_signature_item name: (_) @name) @function
(struct_item name: (_) @name) @struct
(union_item name: (_) @name) @union
(enum_item name: (_) @name) @enum
(trait_item name: (_) @name) @trait
(impl_item type: (type_identifier) @name) @impl
(impl_item type: (generic_type type: (_) @name)) @impl
(impl_item type: (scoped_type_identifier name: (_) @name)) @impl
(impl_item type: (reference_type type: (_) @name)) @impl
(mod_item name: (_) @name body: (_)) @module
(macro_definition name: (_) @name) @macro
(const_item name: (_) @name) @constant
(static_item name: (_) @name) @constant
(type_item name: (_) @name) @type
[(line_comment) (block_comment)] @comment
(attribute_item) @above
""",
        endings="rs",
        methods_in_folder=True,
        imports="rust",
        separator=r"\??\.|::",
        type_arguments=True,
        macro_mark="!",
    ),
    "java": Language(
        """
(class_declaration name: (_) @name) @class
(record_declaration name: (_) @name) @class
(interface_declaration name: (_) @name) @interface
(annotation_type_declaration name: (_) @name) @interface
(enum_declaration name: (_) @name) @enum
(method_declaration name: (_) @name) @method
(annotation_type_element_declaration name: (_) @name) @method
(constructor_declaration name: (_) @name) @method
(compact_constructor_declaration name: (_) @name) @method
(field_declaration declarator: (variable_declarator name: (_) @name)) @field
(constant_declaration declarator: (variable_declarator name: (_) @name)) @field
(enum_constant name: (_) @name) @field
[(line_comment) (block_comment)] @comment
""",
        endings="java",
        implicit_this=True,
        unbound_is_external=True,
        shares_folder=True,
        imports="class",
        modules_are_named=True,
        calls_apart=True,
        type_arguments=True,
    ),
    "c": Language(_C, endings="c h", syntax_check="new", family="c", imports="header", separator=r"\.|->"),
    "cpp": Language(
        """
(function_definition declarator: (function_declarator declarator: (identifier) @keyword
  parameters: (parameter_list . (_) @owner . (_) @name .))) @call
"""
        + _C
        + """
(function_definition declarator: (reference_declarator (function_declarator declarator: (_) @name))) @function
(function_definition declarator: (operator_cast) @name) @function
(function_definition declarator: (qualified_identifier name: (operator_cast)) @name) @function
(class_specifier name: (_) @name body: (_)) @class
(namespace_definition name: (_) @name) @namespace
(alias_declaration name: (_) @name) @type
(concept_definition name: (_) @name) @concept
(declaration_list (declaration declarator: (init_declarator declarator: (identifier) @name)) @variable)
(declaration_list (declaration declarator: (function_declarator declarator: (identifier) @name)) @prototype)
(declaration_list
  (declaration declarator: (_ (function_declarator declarator: (identifier) @name))) @prototype)
(field_declaration_list (field_declaration declarator: (function_declarator declarator: (_) @name)) @prototype)
(field_declaration_list
  (field_declaration declarator: (_ (function_declarator declarator: (_) @name))) @prototype)
(field_declaration_list (declaration declarator: (function_declarator declarator: (_) @name)) @prototype)
(template_declaration) @wrap
""",
        dotted=True,
        keywords=dict.fromkeys(("TEST", "TEST_F", "TEST_P", "TYPED_TEST", "TYPED_TEST_P"), "test"),
        endings="cc cpp cxx c++ hh hpp hxx h++ ipp inl tcc tpp cu cuh ino",
        syntax_check="new",
        implicit_this=True,
        family="c",
        imports="header",
        separator=r"\.|->|::",
        type_arguments=True,
    ),
    "objc": Language(endings="m mm", family="c", imports="header", separator=r"\.|->", syntax_check="none"),
    "kotlin": Language(
        """
(class_declaration (modifiers (class_modifier "enum")) name: (_) @name) @enum
(class_declaration "interface" name: (_) @name) @interface
(class_declaration name: (_) @name) @class
(object_declaration name: (_) @name) @object
(companion_object name: (_) @name) @object
(function_declaration [(user_type) (nullable_type)] @owner . name: (_) @name) @function
(function_declaration name: (_) @name) @function
(secondary_constructor "constructor" @name) @function
(type_alias type: (_) @name) @type
(property_declaration (user_type) @owner . (variable_declaration . (identifier) @name)) @property
(source_file (property_declaration (variable_declaration . (identifier) @name)) @constant)
(class_body (property_declaration (variable_declaration . (identifier) @name)) @property)
(enum_entry . (identifier) @name) @field
[(line_comment) (block_comment)] @comment
""",
        bodies=frozenset(("class_body", "enum_class_body", "function_body", "block")),
        endings="kt kts",
        implicit_this=True,
        shares_folder=True,
        imports="class",
        type_arguments=True,
    ),
    "scala": Language(
        """
(class_definition name: (_) @name) @class
(object_definition name: (_) @name) @object
(package_object name: (_) @name) @object
(trait_definition name: (_) @name) @trait
(enum_definition name: (_) @name) @enum
(function_definition name: (_) @name) @function
(function_declaration name: (_) @name) @function
(given_definition name: (_) @name) @given
(given_definition return_type: (_) @name) @given
(extension_definition parameters: (parameters . (parameter type: (_) @name))) @extension
(type_definition name: (_) @name) @type
(template_body (val_definition pattern: (identifier) @name) @field)
(template_body (var_definition pattern: (identifier) @name) @field)
(template_body (val_declaration name: (identifier) @name) @field)
(compilation_unit (val_definition pattern: (identifier) @name) @constant)
(simple_enum_case name: (_) @name) @field
(full_enum_case name: (_) @name) @field
[(comment) (block_comment)] @comment
""",
        endings="scala sc sbt",
        type_arguments=True,
    ),
    "csharp": Language(
        """
(namespace_declaration name: (_) @name) @namespace
(class_declaration name: (_) @name) @class
(record_declaration name: (_) @name) @class
(struct_declaration name: (_) @name) @struct
(interface_declaration name: (_) @name) @interface
(enum_declaration name: (_) @name) @enum
(enum_member_declaration name: (_) @name) @field
(delegate_declaration name: (_) @name) @type
(method_declaration name: (_) @name) @method
(local_function_statement name: (_) @name) @function
(constructor_declaration name: (_) @name) @method
(destructor_declaration name: (_) @name) @method
(operator_declaration operator: (_) @name) @function
(indexer_declaration "this" @name) @property
(property_declaration name: (_) @name) @property
(event_declaration name: (_) @name) @event
(event_field_declaration (variable_declaration (variable_declarator name: (_) @name))) @event
(field_declaration (variable_declaration (variable_declarator name: (_) @name))) @field
(comment) @comment
""",
        endings="cs csx",
        syntax_check="new",
        implicit_this=True,
        shares_folder=True,
        type_arguments=True,
    ),
    "ruby": Language(
        """
(module name: (_) @name) @module
(class name: (_) @name) @class
(method name: (_) @name) @function
(singleton_method name: (_) @name) @function
(alias name: (_) @name) @function
(call method: (identifier) @keyword arguments: (argument_list (simple_symbol) @name)) @call
(assignment left: (constant) @name) @constant
(comment) @comment
""",
        dotted=True,
        owners=TYPES | {"module"},
        keywords={"attr_accessor": "property", "attr_reader": "property", "attr_writer": "property"}
        | {"define_method": "function", "def_delegator": "function"},
        endings="rb rake gemspec ru",
        file_names="rakefile gemfile guardfile vagrantfile",
        shebang=r"ruby",
        line_comment="#",
        separator=r"&\.|\.|::",
    ),
    "perl": Language(endings="pl pm", shebang=r"perl", syntax_check="none"),
    "php": Language(
        """
(class_declaration name: (_) @name) @class
(interface_declaration name: (_) @name) @interface
(trait_declaration name: (_) @name) @trait
(enum_declaration name: (_) @name) @enum
(enum_case name: (_) @name) @field
(function_definition name: (_) @name) @function
(method_declaration name: (_) @name) @method
(const_declaration (const_element . (name) @name)) @constant
(property_declaration (property_element name: (variable_name (name) @name))) @property
(comment) @comment
""",
        endings="php phtml",
        shebang=r"php",
        line_comment="#",
        separator=r"\?->|->|::",
    ),
    "lua": Language(
        """
(function_declaration name: (_) @name) @function
(assignment_statement
  (variable_list . name: (_) @name) (expression_list . value: (function_definition) @value)) @function
(field name: (identifier) @name value: (function_definition) @value) @function
(variable_declaration (assignment_statement
  (variable_list . name: (_) @name) (expression_list . value: (function_call name: (_) @keyword)))) @call
(chunk (variable_declaration (assignment_statement (variable_list . name: (identifier) @name))) @variable)
(comment) @comment
(variable_declaration) @wrap
""",
        dotted=True,
        keywords=_REQUIRE,
        endings="lua",
        shebang=r"lua",
        line_comment="--",
        separator=r"\.|:",
    ),
    "swift": Language(
        """
(class_declaration declaration_kind: "struct" name: (_) @name) @struct
(class_declaration declaration_kind: "enum" name: (_) @name) @enum
(class_declaration declaration_kind: "extension" name: (_) @name) @extension
(class_declaration name: (_) @name) @class
(protocol_declaration name: (_) @name) @interface
(function_declaration "func" . name: (_) @name) @function
(protocol_function_declaration "func" . name: (_) @name) @function
(init_declaration "init" @name) @function
(deinit_declaration "deinit" @name) @function
(subscript_declaration "subscript" @name) @function
(typealias_declaration . name: (type_identifier) @name) @type
(typealias_declaration (modifiers) . name: (type_identifier) @name) @type
(associatedtype_declaration . name: (_) @name) @type
(source_file (property_declaration name: (pattern bound_identifier: (_) @name)) @constant)
(class_body (property_declaration name: (pattern bound_identifier: (_) @name)) @property)
(enum_class_body (property_declaration name: (pattern bound_identifier: (_) @name)) @property)
(protocol_property_declaration name: (pattern bound_identifier: (_) @name)) @property
(enum_entry name: (simple_identifier) @name) @field
(macro_declaration (simple_identifier) @name) @macro
[(comment) (multiline_comment)] @comment
""",
        dotted=True,
        endings="swift",
        syntax_check="new",
        type_arguments=True,
    ),
    "elixir": Language(
        """
(unary_operator operator: "@" operand: (call target: (identifier) @keyword
  (arguments (binary_operator left: [(identifier) @name (call target: (identifier) @name)])))) @call
(call target: (identifier) @keyword (arguments . (alias) @name)) @call
(call target: (identifier) @keyword (arguments . (identifier) @name)) @call
(call target: (identifier) @keyword (arguments . (call target: (identifier) @name))) @call
(call target: (identifier) @keyword (arguments . (binary_operator left: (identifier) @name))) @call
(call target: (identifier) @keyword (arguments . (binary_operator left: (call target: (identifier) @name)))) @call
(call target: (identifier) @keyword (arguments . (string (quoted_content) @name))) @call
(call target: (identifier) @keyword (arguments . (atom) @name)) @call
(comment) @comment
(unary_operator operator: "@") @above
""",
        keywords={"defmodule": "module", "defprotocol": "interface", "defimpl": "impl", "defexception": "struct"}
        | dict.fromkeys(("def", "defp", "defdelegate", "defn", "defnp"), "function")
        | dict.fromkeys(("defmacro", "defmacrop", "defguard", "defguardp"), "macro")
        | dict.fromkeys(("type", "typep", "opaque"), "type")
        | dict.fromkeys(("callback", "macrocallback"), "function")
        | dict.fromkeys(("test", "describe"), "test"),
        equations=True,
        bodies=frozenset(("do_block",)),
        endings="ex exs",
        shebang=r"elixir",
        line_comment="#",
    ),
    "haskell": Language(
        """
(declarations (signature name: (_) @name) @function)
(declarations (function name: (_) @name) @function)
(declarations (function (infix operator: (infix_id (_) @name))) @function)
(declarations (function (infix operator: (_) @name)) @function)
(declarations (bind name: (_) @name) @function)
(class_declarations (signature name: (_) @name) @function)
(class_declarations (default_signature (signature name: (_) @name)) @function)
(class_declarations (function name: (_) @name) @function)
(class_declarations (bind name: (_) @name) @function)
(instance_declarations (function name: (_) @name) @function)
(instance_declarations (bind name: (_) @name) @function)
(data_type name: (_) @name) @type
(newtype name: (_) @name) @type
(type_synomym name: (_) @name) @type
(type_family name: (_) @name) @type
(data_family name: (_) @name) @type
(class name: (_) @name) @class
(instance name: (_) @name) @instance
(pattern_synonym (equation synonym: (apply function: (_) @name))) @constant
(data_constructor (_ name: (constructor) @name)) @field
(field name: (field_name (variable) @name)) @field
[(comment) (haddock)] @comment
""",
        equations=True,
        bodies=frozenset(("class_declarations", "instance_declarations")),
        endings="hs",
        shebang=r"runghc|stack",
        line_comment="--",
    ),
    "zig": Language(
        """
(function_declaration name: (_) @name) @function
(variable_declaration . (identifier) @name (struct_declaration)) @struct
(variable_declaration . (identifier) @name (opaque_declaration)) @struct
(variable_declaration . (identifier) @name (enum_declaration)) @enum
(variable_declaration . (identifier) @name (union_declaration)) @union
(variable_declaration . (identifier) @name (error_set_declaration)) @enum
(variable_declaration . (identifier) @name (builtin_function (builtin_identifier) @keyword)) @call
(source_file (variable_declaration . (identifier) @name) @constant)
(struct_declaration (variable_declaration . (identifier) @name) @constant)
(test_declaration (string (string_content) @name)) @test
(test_declaration (identifier) @name) @test
(comment) @comment
""",
        keywords={"@import": "ignore"},
        endings="zig zon",
    ),
    "sql": Language(
        """
(create_table (object_reference name: (_) @name)) @table
(create_view (object_reference name: (_) @name)) @view
(create_materialized_view (object_reference name: (_) @name)) @view
(create_function . (_) (object_reference name: (_) @name)) @function
(create_index column: (_) @name) @index
(create_trigger (keyword_trigger) . (object_reference name: (_) @name)) @trigger
(create_type (object_reference name: (_) @name)) @type
(create_schema (identifier) @name) @schema
(create_sequence (object_reference name: (_) @name)) @sequence
[(comment) (marginalia)] @comment
(statement) @wrap
""",
        bodies=frozenset(("column_definitions", "function_body", "create_query")),
        endings="sql ddl",
        line_comment="--",
        is_code=False,
        syntax_check="new",
    ),
    "proto": Language(
        """
(message (message_name (_) @name)) @struct
(enum (enum_name (_) @name)) @enum
(service (service_name (_) @name)) @interface
(rpc (rpc_name (_) @name)) @function
(comment) @comment
""",
        bodies=frozenset(("message_body", "enum_body")),
        endings="proto",
        is_code=False,
    ),
    "graphql": Language(
        """
(object_type_definition (name) @name) @type
(interface_type_definition (name) @name) @interface
(enum_type_definition (name) @name) @enum
(input_object_type_definition (name) @name) @type
(union_type_definition (name) @name) @union
(scalar_type_definition (name) @name) @type
(operation_definition (name) @name) @function
(fragment_definition (fragment_name (name) @name)) @fragment
(comment) @comment
""",
        endings="graphql gql",
        line_comment="#",
        is_code=False,
    ),
    "hcl": Language(
        """
(block . (identifier) . (string_lit (template_literal) @owner) . (string_lit (template_literal) @name)) @block
(block . (identifier) . (string_lit (template_literal) @name)) @block
(comment) @comment
""",
        endings="tf hcl tfvars",
        line_comment="#",
    ),
    "make": Language(
        """
(rule (targets . (word) @name)) @target
(variable_assignment name: (_) @name) @variable
(define_directive name: (_) @name) @macro
(comment) @comment
""",
        endings="mk",
        file_names="makefile gnumakefile",
        line_comment="#",
        is_code=False,
    ),
    "markdown": Language(
        """
(section . (atx_heading (inline) @name)) @section
(setext_heading (paragraph) @name) @section
""",
        endings="md markdown mdx",
        is_document=True,
        is_code=False,
        sections=True,
        syntax_check="none",
    ),
    "rst": Language(
        "(section (title) @name) @section",
        endings="rst",
        is_document=True,
        is_code=False,
        sections=True,
        syntax_check="none",
    ),
    "asciidoc": Language(endings="adoc asciidoc", is_document=True, is_code=False, syntax_check="none"),
    "astro": Language(endings="astro", family="script", imports="script", syntax_check="none"),
    "batch": Language(endings="bat cmd", is_code=False, syntax_check="none"),
    "clojure": Language(endings="clj cljs cljc edn", syntax_check="none"),
    "cmake": Language(endings="cmake", file_names="cmakelists.txt", is_code=False, syntax_check="none"),
    "css": Language(endings="css", is_code=False, syntax_check="all"),
    "dart": Language(endings="dart", syntax_check="none"),
    "dockerfile": Language(
        endings="dockerfile", file_names="dockerfile containerfile", is_code=False, syntax_check="none"
    ),
    "erlang": Language(endings="erl hrl", syntax_check="none"),
    "fortran": Language(endings="f90 f95 f03 f08", syntax_check="none"),
    "groovy": Language(endings="groovy gradle", file_names="jenkinsfile", syntax_check="none"),
    "heex": Language(endings="heex", is_code=False, syntax_check="none"),
    "html": Language(endings="html htm xhtml", is_code=False, syntax_check="none"),
    "ini": Language(endings="ini", is_code=False, syntax_check="none"),
    "json": Language(endings="json", is_code=False, syntax_check="all"),
    "json5": Language(endings="json5", is_code=False, syntax_check="none"),
    "jsonc": Language(endings="jsonc", is_code=False, syntax_check="none"),
    "jsonnet": Language(endings="jsonnet libsonnet", syntax_check="none"),
    "julia": Language(endings="jl", syntax_check="none"),
    "just": Language(file_names="justfile", syntax_check="none"),
    "kdl": Language(endings="kdl", is_code=False, syntax_check="none"),
    "latex": Language(endings="tex sty cls", is_code=False, syntax_check="none"),
    "nix": Language(endings="nix", syntax_check="none"),
    "ocaml": Language(endings="ml", syntax_check="none"),
    "org": Language(endings="org", is_document=True, is_code=False, syntax_check="none"),
    "powershell": Language(endings="ps1 psm1", syntax_check="none"),
    "properties": Language(endings="properties", is_code=False, syntax_check="none"),
    "r": Language(endings="r", syntax_check="none"),
    "racket": Language(endings="rkt", syntax_check="none"),
    "scheme": Language(endings="scm ss", syntax_check="none"),
    "scss": Language(endings="scss", is_code=False, syntax_check="none"),
    "solidity": Language(endings="sol", syntax_check="none"),
    "starlark": Language(endings="bzl star", file_names="build build.bazel workspace", syntax_check="none"),
    "svelte": Language(endings="svelte", family="script", imports="script", syntax_check="none"),
    "toml": Language(endings="toml", file_names="cargo.lock poetry.lock uv.lock", is_code=False, syntax_check="all"),
    "typst": Language(endings="typ", is_code=False, syntax_check="none"),
    "vim": Language(endings="vim", syntax_check="none"),
    "vue": Language(endings="vue", family="script", imports="script", syntax_check="none"),
    "wat": Language(endings="wat", is_code=False, syntax_check="none"),
    "xml": Language(endings="xml xsd xsl svg", is_code=False, syntax_check="none"),
    "yaml": Language(endings="yaml yml", is_code=False, syntax_check="new"),
}

PARSED = {name: language for name, language in LANGUAGES.items() if language.query}
# Documents whatever their language is: LaTeX's other files are code, and the rest has no grammar.
DOCUMENT_ENDINGS = frozenset({"tex", "txt", "textile", "rdoc", "ronn"})
_PLAIN_TEXT = Language(syntax_check="none")


def traits_of(language: str) -> Language:
    """The entry of a language; plain text for "" and for a language that is not in the table."""
    return LANGUAGES.get(language, _PLAIN_TEXT)
