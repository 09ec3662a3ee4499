"""What a definition looks like in each language: tree-sitter patterns, one table a language.

The capture around a definition is its kind (`@function`); what else a pattern may capture:
  @name     its name; where the language says so (`dotted`), what stands before the last dot or colon owns it
  @owner    what it belongs to although it does not stand inside it (the receiver of a Go method)
  @value    where its body hangs, if not in the definition's own field "body"
  @comment  a comment: right above a definition it belongs to it, and says what it does
  @above    an attribute or annotation that stands before what it is about
  @wrap     something around a single definition that belongs to it: decorators, `export`, `template <…>`
Functions inside what can have methods are methods: that is not in the patterns.
"""

import msgspec


class Patterns(msgspec.Struct, frozen=True):
    """How to read one language."""

    query: str
    dotted: bool = False  # names are written with their owner: Foo::bar, M.f
    docstring: bool = False  # the first string in a body says what it does
    bodies: frozenset[str] = frozenset()  # node types that end a signature, where the grammar has no field "body"


_JAVASCRIPT = """
(function_declaration name: (_) @name) @function
(generator_function_declaration name: (_) @name) @function
(method_definition name: (_) @name) @function
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)] @value) @function
(assignment_expression left: (member_expression) @name right: [(arrow_function) (function_expression)] @value) @function
(pair key: (property_identifier) @name value: [(arrow_function) (function_expression)] @value) @function
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
    ),
    "typescript": Patterns(_TYPESCRIPT, dotted=True),
    "tsx": Patterns(_TYPESCRIPT, dotted=True),
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
(method_declaration name: (_) @name) @function
(annotation_type_element_declaration name: (_) @name) @function
(constructor_declaration name: (_) @name) @function
(compact_constructor_declaration name: (_) @name) @function
(field_declaration declarator: (variable_declarator name: (_) @name)) @field
(constant_declaration declarator: (variable_declarator name: (_) @name)) @field
(enum_constant name: (_) @name) @field
[(line_comment) (block_comment)] @comment
"""),
    "c": Patterns(_C),
    "cpp": Patterns(
        _C
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
    ),
}
