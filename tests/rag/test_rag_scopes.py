"""What a name means inside its own file: blocks, chains over several lines, fields beside methods."""

from ..support.repositories import expect


def test_each_part_of_a_chain_over_several_lines_stands_on_its_own_line() -> None:
    expect(
        "Store.first",
        """
        --- store.py
        class Store:
            def first(self):
                return self

            def go(self):
                return (
                    self
                    .first  # @exact
                    .second()
                )
        """,
    )


def test_a_field_of_rust_is_not_the_method_of_the_same_name() -> None:
    expect(
        "Options.limit",
        """
        --- src/lib.rs
        pub struct Options { limit: u8 }
        impl Options {
            pub fn limit(&mut self, limit: u8) -> &mut Options {
                self.limit = limit;
                self
            }
            fn both(&mut self) { self.limit(self.limit); } // @exact
        }
        """,
    )


def test_variables_of_a_comprehension_or_a_lambda_hide_nothing_outside_it() -> None:
    expect(
        "lib.py:name",
        """
        --- lib.py
        def name():
            pass


        def other(items):
            first = [name for name in items if name]
            second = sorted(items, key=lambda name: name.x)
            return first, second, name()  # @exact
        --- rival.py
        def name():
            pass
        """,
    )


def test_a_variable_of_a_block_in_go_hides_nothing_outside_it() -> None:
    expect(
        "a/a.go:parse",
        """
        --- a/a.go
        package a

        func parse() int { return 1 }

        func run() {
            if parse := 1; parse > 0 {
                use(parse)
            }
            for _, parse := range []int{1} {
                use(parse)
            }
            parse() // @exact
        }
        --- b/b.go
        package b

        func parse() {}
        """,
    )


def test_a_package_of_go_is_found_by_its_module_and_the_keys_of_a_map_are_uses() -> None:
    expect(
        "chi.go:NewRouter",
        """
        --- go.mod
        module github.com/go-chi/chi/v5
        --- chi.go
        package chi

        func NewRouter() int { return 1 }
        --- middleware/m.go
        package middleware

        import "github.com/other/chi"
        import own "github.com/go-chi/chi/v5"

        var all = map[int]int{own.NewRouter(): 1} // @exact
        var other = chi.NewRouter()
        --- rival/r.go
        package rival

        type T struct { NewRouter int }

        func NewRouter() {}
        var t = T{NewRouter: 1}
        --- _examples/main.go
        package main

        import "github.com/go-chi/chi/v5"

        func main() { chi.NewRouter() } // @exact
        """,
    )


def test_constants_as_the_keys_of_a_map_are_uses() -> None:
    expect(
        "mGET",
        """
        --- tree.go
        package chi

        const mGET = 1

        var names = map[int]string{
            mGET: "GET", // @exact
        }
        """,
    )


def test_what_a_struct_embeds_is_a_use_of_it() -> None:
    expect(
        "basicWriter",
        """
        --- w.go
        package w

        type basicWriter struct{}

        type flushWriter struct {
            basicWriter // @exact
        }
        """,
    )


def test_methods_of_go_are_found_on_literals_and_unknown_receivers_and_are_no_names_of_the_package() -> None:
    expect(
        "BSON.Render",
        """
        --- render/bson.go
        package render

        type BSON struct{}

        func (r BSON) Render(w int) {}

        type Render interface {
            Render(w int)
        }

        type JSON struct {
            Render int
        }

        func (r JSON) Render(w int) {}

        func f(one Render) Render { return one }
        --- render/bson_test.go
        package render

        func test(w int) {
            (BSON{1}).Render(w) // @exact
            BSON{}.Render(w) // @exact
            JSON{}.Render(w)
            _, both := two()
            both.Render(w) // @name_only
            made := once(func() {})
            made().Render(w) // @name_only
        }
        """,
    )


def test_names_of_fields_and_variants_are_no_uses() -> None:
    expect(
        "Trace",
        """
        --- src/lib.rs
        pub struct Trace;
        pub enum Level { Trace, Off }
        pub struct All { Trace: u8 }
        pub fn trace(given: Trace) {} // @exact
        """,
    )
    expect(
        "validate",
        """
        --- a/a.go
        package a

        func validate() {}

        type T struct {
            validate int
        }

        func f(t T) { validate() } // @exact
        """,
    )
    expect(
        "connect",
        """
        --- a.ts
        export function connect() {}
        interface Options { connect: boolean; connect2(): void }
        type More = { connect?: string };
        enum Kind { connect }
        connect(); // @exact
        """,
    )


def test_a_field_in_go_is_not_the_type_that_has_its_name() -> None:
    expect(
        "endpoints",
        """
        --- tree.go
        package chi

        import "net/http"

        type endpoints map[int]int

        func f(one Unknown, made endpoints) int { // @exact
            return one.children[0].endpoints[1]
        }

        func head() int {
            f := f()
            return f
        }
        """,
    )
    expect(
        "Params.Value",
        """
        --- tree.go
        package chi

        import "net/http"

        type Params struct{}

        func (p Params) Value(name string) string { return name }

        func f(r *http.Request) {
            r.Context().Value("article") // @name_only
        }
        """,
    )
