"""What a definition looks like in each language: tree-sitter patterns, one table a language.

The capture around a definition is its kind (`@function`); what else a pattern may capture:
  @name     its name; where the language says so (`dotted`), what stands before the last dot or colon owns it
  @owner    what it belongs to although it does not stand inside it (the receiver of a Go method)
  @value    where its body hangs, if not in the definition's own field "body"
  @comment  a comment: right above a definition it belongs to it, and says what it does
  @above    an attribute or annotation that stands before what it is about
  @wrap     something around a single definition that belongs to it: decorators, `export`, `template <…>`
  @keyword  a word that decides what it is, by the language's `keywords`; with another word it is nothing
Something of the kind `ignore` is none, whatever later patterns say: an import is not a constant.
Functions inside what can have methods are methods: that is not in the patterns.
"""

import msgspec

TYPES = frozenset(
    ["class", "struct", "union", "interface", "trait", "enum", "impl", "extension", "instance", "object", "given"]
)  # have methods


class Patterns(msgspec.Struct, frozen=True):
    """How to read one language."""

    query: str
    owners: frozenset[str] = TYPES  # a function directly inside one of these kinds is a method
    dotted: bool = False  # names are written with their owner: Foo::bar, M.f
    docstring: bool = False  # the first string in a body says what it does
    bodies: frozenset[str] = frozenset()  # node types that end a signature, where the grammar has no field "body"
    keywords: dict[str, str] = {}  # what a call of this name defines: defmodule → module
    equations: bool = False  # neighbours of one name are one function: f 0 = …, f n = …


_JAVASCRIPT = """
(function_declaration name: (_) @name) @function
(generator_function_declaration name: (_) @name) @function
(method_definition name: (_) @name) @function
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
LANGUAGES: dict[str, Patterns] = {
    "python": Patterns(
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
    ),
    "javascript": Patterns(
        _JAVASCRIPT
        + """
(class_declaration name: (_) @name) @class
(field_definition property: (_) @name value: [(arrow_function) (function_expression)] @value) @function
(field_definition property: (_) @name) @field
(decorator) @above
""",
        dotted=True,
        keywords=_REQUIRE,
    ),
    "typescript": Patterns(_TYPESCRIPT, dotted=True, keywords=_REQUIRE),
    "tsx": Patterns(_TYPESCRIPT, dotted=True, keywords=_REQUIRE),
    "go": Patterns("""
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
"""),
    "rust": Patterns("""
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
"""),
    "java": Patterns("""
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
"""),
    "c": Patterns(_C),
    "cpp": Patterns(
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
(field_declaration_list (field_declaration declarator: (function_declarator declarator: (_) @name)) @prototype)
(field_declaration_list
  (field_declaration declarator: (_ (function_declarator declarator: (_) @name))) @prototype)
(field_declaration_list (declaration declarator: (function_declarator declarator: (_) @name)) @prototype)
(template_declaration) @wrap
""",
        dotted=True,
        keywords=dict.fromkeys(("TEST", "TEST_F", "TEST_P", "TYPED_TEST", "TYPED_TEST_P"), "test"),
    ),
    "kotlin": Patterns(
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
    ),
    "scala": Patterns("""
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
"""),
    "csharp": Patterns("""
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
"""),
    "ruby": Patterns(
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
    ),
    "php": Patterns("""
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
"""),
    "swift": Patterns(
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
    ),
    "lua": Patterns(
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
    ),
    "bash": Patterns("""
(function_definition name: (_) @name) @function
(program (variable_assignment name: (_) @name) @variable)
(program (declaration_command (variable_assignment name: (_) @name)) @variable)
(comment) @comment
"""),
    "haskell": Patterns(
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
    ),
    "elixir": Patterns(
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
    ),
    "zig": Patterns(
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
    ),
    "sql": Patterns(
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
    ),
    "proto": Patterns(
        """
(message (message_name (_) @name)) @struct
(enum (enum_name (_) @name)) @enum
(service (service_name (_) @name)) @interface
(rpc (rpc_name (_) @name)) @function
(comment) @comment
""",
        bodies=frozenset(("message_body", "enum_body")),
    ),
    "graphql": Patterns("""
(object_type_definition (name) @name) @type
(interface_type_definition (name) @name) @interface
(enum_type_definition (name) @name) @enum
(input_object_type_definition (name) @name) @type
(union_type_definition (name) @name) @union
(scalar_type_definition (name) @name) @type
(operation_definition (name) @name) @function
(fragment_definition (fragment_name (name) @name)) @fragment
(comment) @comment
"""),
    "hcl": Patterns("""
(block . (identifier) . (string_lit (template_literal) @owner) . (string_lit (template_literal) @name)) @block
(block . (identifier) . (string_lit (template_literal) @name)) @block
(comment) @comment
"""),
    "make": Patterns("""
(rule (targets . (word) @name)) @target
(variable_assignment name: (_) @name) @variable
(define_directive name: (_) @name) @macro
(comment) @comment
"""),
    "markdown": Patterns("""
(section . (atx_heading (inline) @name)) @section
(setext_heading (paragraph) @name) @section
"""),
    "rst": Patterns("(section (title) @name) @section"),
}
