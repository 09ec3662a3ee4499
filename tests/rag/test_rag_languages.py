"""The graph of the other languages: imports, receivers and bases as each of them writes them."""

import pytest

from ..support.repositories import Repository, expect, found


@pytest.mark.parametrize("ending", ["js", "ts", "tsx"])
def test_scripts_follow_imports_exports_and_this(ending: str) -> None:
    expect(
        "Store.save",
        """
        --- src/store.ENDING
        export class Store {
          save() {}
          twice() { this.save(); }  // @exact
        }
        export default class Fallback {
          save() {}
        }
        --- src/index.ENDING
        export { Store as Shop } from './store';
        export * from './store';
        --- src/use.ENDING
        import Fallback, { Store as S } from './store';
        import * as all from '.';
        import { Shop } from './index.js';

        class Sub extends S {
          constructor() { super(); this.own = new S(); }
          go() {
            this.save();  // @exact
            this.own.save();  // @exact
            new Shop().save();  // @exact
            const made = new all.Store();
            made.save();  // @exact
            new Fallback().save();
            // save()
            `${made.save()}`;  // @exact
          }
        }
        function f(unknown) { unknown.save(); }  // @name_only
        """.replace("ENDING", ending),
    )


def test_typescript_knows_receivers_by_their_types() -> None:
    expect(
        "Store.save",
        """
        --- store.ts
        export class Store { save(): Store { return this; } }
        class Rival { save() {} }
        --- use.ts
        import type { Store } from './store';

        class A {
          constructor(private store: Store) {}
          other?: Store;
          run(given: Promise<Store>) {
            this.store.save();  // @exact
            this.other.save();  // @exact
            given.save().save();  // @exact
          }
        }
        """,
    )


def test_commonjs_requires_are_imports() -> None:
    expect(
        "lib/a.js:run",
        """
        --- lib/a.js
        function run() {}
        module.exports = { run };  // @exact
        --- lib/b.js
        function run() {}
        --- use.js
        const a = require('./lib/a');
        const { run: go } = require('./lib/a');  // @exact

        a.run();  // @exact
        go();  // @exact
        """,
    )


def test_go_follows_packages_receivers_and_embedding() -> None:
    expect(
        "Store.Save",
        """
        --- go.mod
        module example.com/app
        --- store/store.go
        package store

        type Store struct{ name string }

        func New() *Store { return &Store{} }

        type Rival struct{}

        func (r Rival) Save() {}
        --- store/save.go
        package store

        func (s *Store) Save() { s.again() }

        func (s *Store) again() {
            s.Save() // @exact
        }
        --- main.go
        package main

        import (
            st "example.com/app/store"
        )

        type Wrap struct {
            *st.Store
            own st.Store
            rival st.Rival
        }

        func run(given *st.Store, w Wrap) {
            given.Save() // @exact
            made := st.New()
            made.Save() // @exact
            w.Save() // @exact
            w.own.Save() // @exact
            w.rival.Save()
            x := &st.Store{}
            x.Save() // @exact
        }
        """,
    )


def test_rust_follows_use_trees_impls_and_self() -> None:
    expect(
        "Store.save",
        """
        --- Cargo.toml
        [package]
        --- src/lib.rs
        pub mod store;
        pub mod user;
        --- src/store.rs
        pub struct Store { n: i32 }

        impl Store {
            pub fn new() -> Self { Store { n: 1 } }
            pub fn save(&self) {}
            fn twice(&self) {
                self.save(); // @exact
                Self::save(self); // @exact
            }
        }

        pub struct Rival;

        impl Rival { pub fn save(&self) {} }
        --- src/user.rs
        use crate::store::{Rival, Store as Shop};

        struct Keeper { shop: Box<Shop> }

        impl Keeper {
            fn go(&self, given: &Shop) {
                given.save(); // @exact
                self.shop.save(); // @exact
                let made = Shop::new();
                made.save(); // @exact
                let rival = Rival {};
                rival.save();
                crate::store::Store::save(given); // @exact
            }
        }
        """,
    )


def test_java_follows_imports_fields_and_inheritance() -> None:
    expect(
        "Store.save",
        """
        --- src/a/Store.java
        package a;

        public class Store {
          public Store save() { return this; }
          void twice() { save(); }  // @exact
        }
        --- src/a/Rival.java
        package a;

        public class Rival { void save() {} }
        --- src/b/Use.java
        package b;

        import a.Store;
        import a.*;

        class Use extends Store {
          private Store own;
          Rival rival;

          void go(Store given) {
            given.save();  // @exact
            own.save();  // @exact
            this.own.save();  // @exact
            save();  // @exact
            var made = new Store();
            made.save();  // @exact
            rival.save();
          }
        }
        """,
    )


def test_c_calls_are_found_through_headers() -> None:
    expect(
        "save_it",
        """
        --- store.h
        void save_it(int n);
        --- store.c
        #include "store.h"

        void save_it(int n) {}

        static void other(void) {
          save_it(1); // @exact
        }
        --- main.c
        #include "store.h"

        int main(void) {
          save_it(2); // @exact
          void (*f)(int) = save_it; // @exact
          printf("save_it");
          return 0;
        }
        """,
    )


def test_cpp_follows_members_and_bases() -> None:
    expect(
        "Store.save",
        """
        --- store.hpp
        namespace shop {
        class Store {
         public:
          void save() {}
        };
        class Rival {
         public:
          void save() {}
        };
        }
        --- use.cpp
        #include "store.hpp"

        class Sub : public shop::Store {
          shop::Rival rival;
          void go(shop::Store& given) {
            save(); // @exact
            given.save(); // @exact
            shop::Store own;
            own.save(); // @exact
            auto made = new shop::Store();
            made->save(); // @exact
            rival.save();
          }
        };
        """,
    )


def test_a_language_without_rules_of_its_own_is_searched_by_name() -> None:
    sources = {
        "a.rb": "def frobnicate(x)\n  x\nend\n",
        "b.rb": "thing.frobnicate(1)\nfrobnicate 2\n# frobnicate\nputs 'frobnicate'\n",
    }
    assert Repository(sources).parsed[0].definitions
    assert {(path, line) for path, line, _ in found(sources, "frobnicate")} == {("b.rb", 1), ("b.rb", 2)}
