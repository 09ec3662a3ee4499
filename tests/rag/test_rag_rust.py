"""The graph of Rust: crates by their manifests, modules inside files, macros, patterns."""

from ..support.repositories import expect


def test_a_crate_has_the_name_that_its_manifest_gives_it() -> None:
    expect(
        "search_reader",
        """
        --- Cargo.toml
        [workspace]
        members = ["crates/*"]
        --- crates/searcher/Cargo.toml
        [package]
        name = "grep-searcher"
        --- crates/searcher/src/lib.rs
        pub use crate::glue::search_reader; // @exact
        mod glue;
        pub mod other { pub fn search_reader() {} }
        --- crates/searcher/src/glue.rs
        pub fn search_reader() {}
        --- crates/core/Cargo.toml
        [package]
        name = "rg"
        [[bin]]
        name = "rg"
        path = "main.rs"
        [dependencies]
        grep-searcher = { path = "../searcher" }
        renamed = { package = "grep-searcher", version = "1" }
        outside = "1"
        --- crates/core/main.rs
        mod flags;
        fn main() {
            grep_searcher::search_reader(); // @exact
            renamed::search_reader(); // @exact
            outside::search_reader();
            flags::run();
        }
        --- crates/core/flags/mod.rs
        use grep_searcher::{self, search_reader as go}; // @exact
        pub fn run() { go(); } // @exact
        --- crates/named/Cargo.toml
        [package]
        name = "x"
        [lib]
        name = "other_name"
        path = "lib/top.rs"
        --- crates/named/lib/top.rs
        pub use grep_searcher::search_reader; // @exact
        --- crates/core/tests/all.rs
        fn check() { other_name::search_reader(); } // @exact
        """,
    )


def test_modules_inside_a_file_and_beside_it_are_found() -> None:
    expect(
        "src/lib.rs:Mock",
        """
        --- Cargo.toml
        [package]
        name = "app"
        --- src/lib.rs
        #[cfg(test)]
        pub mod test {
            use super::*;
            pub struct Mock;
            impl Mock { fn new() -> Mock { Mock } } // @exact
            mod inner {
                use super::Mock; // @exact
                fn f() { super::Mock::new(); } // @exact
            }
        }
        pub mod reap;
        #[path = "unix/mod.rs"]
        mod imp;
        pub struct Rival;
        --- src/reap.rs
        use crate::test::Mock; // @exact
        fn g() { Mock::new(); } // @exact
        --- src/unix/mod.rs
        pub use crate::test::Mock; // @exact
        --- src/other.rs
        pub struct Mock;
        --- src/user.rs
        use crate::imp::Mock; // @exact
        use crate::imp;
        fn h() { imp::Mock::new(); } // @exact
        --- tests/one.rs
        mod support {
            pub mod helper;
        }
        use support::helper::Mock; // @exact
        fn i() { Mock::new(); } // @exact
        --- tests/support/helper.rs
        pub use app::test::Mock; // @exact
        """,
    )


def test_items_and_calls_inside_macros_are_seen() -> None:
    expect(
        "budget",
        """
        --- Cargo.toml
        [package]
        name = "app"
        --- src/lib.rs
        #[macro_use]
        mod macros;
        cfg_rt! {
            mod coop;
            pub use coop::budget; // @exact
            cfg_more! {
                pub fn more() { budget(); } // @exact
            }
        }
        impl Thing {
            cfg_rt! {
                pub fn go(&self) { crate::budget(); } // @exact
            }
        }
        --- src/coop.rs
        pub fn budget() {}
        #[cfg(test)]
        mod tests {
            use super::*;
            fn help() -> u8 { 1 }
            fn t() { assert_eq!(help(), budget()); } // @exact
        }
        --- src/rival.rs
        pub fn budget() {}
        --- tests/it.rs
        fn t() { let _ = select!(spawn(app::budget()), 1); } // @exact
        """,
    )


def test_a_macro_is_used_wherever_it_is_called() -> None:
    expect(
        "cfg_rt",
        """
        --- src/macros.rs
        macro_rules! cfg_rt { ($($item:item)*) => { $($item)* } }
        --- src/lib.rs
        #[macro_use]
        mod macros;
        cfg_rt! { // @likely
            pub fn f() {}
        }
        """,
    )


def test_a_name_of_one_pattern_hides_no_other() -> None:
    expect(
        "output",
        """
        --- src/lib.rs
        pub fn output() {}
        fn f(given: Option<u8>) {
            match given {
                Some(output) => drop(output),
                None => output(), // @exact
            }
            if let Some(ref mut output) = given { drop(output); }
            let run = |mut output: u8, (a, b)| output + a;
            { let output = 1; drop(output); }
            output(); // @exact
        }
        """,
    )


def test_a_receiver_that_patterns_bind_is_unknown_and_not_of_another_project() -> None:
    expect(
        "State.set_running",
        """
        --- src/lib.rs
        use std::sync::{Arc, Mutex};
        use outside::wrap;
        pub struct State { n: u8 }
        impl State { fn set_running(&mut self) {} }
        fn f(given: Vec<State>) {
            update(|mut next| { next.set_running(); }); // @likely
            let shared = Arc::new(Mutex::new(State { n: 1 }));
            shared.lock().unwrap().set_running(); // @likely
            if let Some(mut one) = given.pop() { one.set_running(); } // @name_only
            wrap(1).set_running(); // @name_only
            std::thread::set_running();
        }
        """,
    )


def test_a_method_of_a_trait_may_be_called_on_what_another_project_defines() -> None:
    expect(
        "PathExt.is_hidden_file",
        """
        --- src/lib.rs
        use std::path::Path;
        trait PathExt { fn is_hidden_file(&self) -> bool; }
        impl PathExt for Path { fn is_hidden_file(&self) -> bool { true } }
        fn f(path: &Path) {
            path.is_hidden_file(); // @name_only
        }
        """,
    )


def test_a_block_is_a_value_of_unknown_type() -> None:
    expect(
        "State.set_running",
        """
        --- src/lib.rs
        pub struct State;
        impl State { fn set_running(&mut self) {} }
        fn f(given: State) {
            unsafe { get() }.set_running(); // @likely
            match 1 { _ => given }.set_running(); // @likely
        }
        """,
    )


def test_a_variable_does_not_hold_before_it_and_is_never_the_start_of_a_path() -> None:
    expect(
        "src/count.rs:count",
        """
        --- src/lib.rs
        mod count;
        use count::count; // @exact
        fn f() {
            let count = count(); // @exact
            let count = count + 1;
        }
        fn g(count: u8) { count::count(); } // @exact
        --- src/count.rs
        pub fn count() -> u8 { 1 }
        --- src/rival.rs
        pub fn count() {}
        """,
    )


def test_a_method_is_never_imported() -> None:
    expect(
        "Client.patch",
        """
        --- src/lib.rs
        pub struct Client;
        impl Client { fn patch(&self) {} }
        --- src/user.rs
        use crate::routing::{get, patch};
        """,
    )


def test_an_enum_whose_variants_are_imported_is_used() -> None:
    expect(
        "Matcher",
        """
        --- src/lib.rs
        pub enum Matcher { One, Two }
        fn f() { use self::Matcher::*; } // @exact
        --- src/b.rs
        use crate::Matcher::{One, Two}; // @exact
        """,
    )
