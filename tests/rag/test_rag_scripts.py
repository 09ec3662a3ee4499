"""The graph of JavaScript and TypeScript: blocks, destructuring, the packages of a workspace."""

import pytest

from llmc_mcp.rag.query.graph import Graph

from ..support.repositories import Repository, expect


@pytest.mark.parametrize("ending", ["js", "ts", "tsx"])
def test_a_local_name_in_a_callback_hides_nothing_outside_it(ending: str) -> None:
    expect(
        "store.ENDING:createStore".replace("ENDING", ending),
        """
        --- store.ENDING
        export function createStore() {}
        --- rival.ENDING
        export function createStore() {}
        --- use.ENDING
        import { createStore } from './store'; // @exact

        describe('a', () => {
          it('b', () => { const createStore = () => 1; createStore(); });
          it('c', createStore => { createStore(); });
          it('d', function () { let createStore; createStore = 1; createStore(); });
          it('e', () => { createStore(); }); // @exact
          for (const createStore of [1]) { createStore(); }
          try { createStore(); } catch (createStore) { createStore(); } // @exact
          if (true) {
            const { createStore } = other();
            createStore();
          }
          createStore(); // @exact
        });
        """.replace("ENDING", ending),
    )


def test_a_name_taken_out_of_a_namespace_is_still_its_own() -> None:
    expect(
        "connect",
        """
        --- lib.ts
        export function connect() {}
        export const other = 1;
        --- rival.ts
        export function connect() {}
        --- use.ts
        import * as lib from './lib';

        const { connect, other: renamed } = lib; // @exact
        connect(); // @exact
        function f() {
          const { connect: join } = lib; // @exact
          join(); // @exact
        }
        """,
    )


def test_packages_of_a_workspace_are_known_by_their_manifests() -> None:
    expect(
        "initRouter",
        """
        --- package.json
        {"name": "root", "workspaces": ["packages/*"]}
        --- packages/server/package.json
        {"name": "@app/server", "main": "dist/index.js",
         "exports": {".": {"import": "./dist/index.mjs"}, "./adapters/*": "./dist/adapters/*.js"}}
        --- packages/server/src/index.ts
        export { initRouter } from './router'; // @exact
        --- packages/server/src/router.ts
        export function initRouter() {}
        --- packages/server/src/adapters/node.ts
        export { initRouter as nodeRouter } from '../router'; // @exact
        --- packages/rival/src/index.ts
        export function initRouter() {}
        --- packages/client/tsconfig.base.json
        {
          // where our own files are
          "compilerOptions": {"baseUrl": ".", "paths": {"~lib/*": ["lib/*"],},},
        }
        --- packages/client/lib/again.ts
        export * from '@app/server';
        --- packages/client/src/use.ts
        import { initRouter } from '@app/server'; // @exact
        import { nodeRouter } from '@app/server/adapters/node'; // @exact
        import { initRouter as again } from '~lib/again'; // @exact
        import { initRouter as foreign } from 'elsewhere';
        import { initRouter as deep } from '@app/server/src/router'; // @exact

        initRouter(); // @exact
        nodeRouter(); // @exact
        again(); // @exact
        deep(); // @exact
        foreign();
        """,
    )


def test_types_and_their_parameters_are_uses() -> None:
    expect(
        "Options",
        """
        --- types.ts
        export interface Options { a: string }
        --- rival.ts
        export interface Options { b: string }
        --- use.ts
        import type { Options } from './types'; // @exact

        export const f = <T extends Options>(given: Options, Options2: Partial<Options>) => given; // @exact
        export type All = Record<string, Options> & { Options: Options }; // @exact
        """,
    )


def test_definitions_of_one_name_in_several_callbacks_are_apart() -> None:
    expect(
        "Case.reducer",
        """
        --- use.ts
        it('a', () => {
          const reducer = () => 1
          reducer()
        })
        class Case {
          reducer() {}
        }
        new Case().reducer() // @exact
        it('b', () => { const reducer = () => 2; reducer() })
        --- other.ts
        import { reducer } from './use'
        reducer()
        """,
    )
    repository = Repository(
        {
            "use.ts": "it('a', () => {\n  type State = {}\n  let a: State\n})\n"
            "it('b', () => {\n  type State = {}\n  let b: State\n})\n"
        }
    )
    graph = Graph(repository)
    uses = [{use.line for use in graph.uses([one])} for one in graph.find("State")]
    assert uses == [{3}, {7}]


def test_a_default_export_is_found_under_the_names_that_importers_give_it() -> None:
    expect(
        "compose",
        """
        --- compose.ts
        export default function compose() {}
        --- rival.ts
        export function compose() {}
        --- use.ts
        import compose from './compose'; // @exact
        import other from './compose'; // @exact

        compose<typeof other>(1); // @exact
        export { compose, other }; // @exact
        """.replace("export function compose", "export function composed"),
    )


def test_a_method_of_another_class_is_not_likely() -> None:
    expect(
        "Emitter.fireAll",
        """
        --- a.ts
        import { EventEmitter } from 'events';

        class Emitter { fireAll() {} }
        class Other extends EventEmitter {}
        class Below extends Emitter {}
        new Other().fireAll(); // @name_only
        new Below().fireAll(); // @exact
        function f(given) { given.fireAll(); } // @likely
        """,
    )


def test_a_property_of_an_object_and_a_type_parameter_are_no_names_of_the_file() -> None:
    expect(
        "lib.ts:render",
        """
        --- lib.ts
        export function render() {}
        --- use.ts
        import { render } from './lib'; // @exact

        it('a', () => {
          const App = { render() { return 1 }, other: { render: () => 2 } };
          render(App); // @exact
        });
        """,
    )
    expect(
        "Config",
        """
        --- a.ts
        interface Config { a: string }
        interface Client<Config = unknown> { get: () => Config }
        function f<Config>(given: Config) {}
        let one: Config; // @exact
        """,
    )


@pytest.mark.parametrize("name", ["Cargo.toml", "package.json", "tsconfig.json", "go.mod"])
@pytest.mark.parametrize(
    "content",
    [
        "",
        "[",
        '{"exports": [[]], "name": 1, "compilerOptions": {"paths": {"a": 1}}}',
        "[" * 100_000,
        "bin = 1\nlib = 2",
    ],
)
def test_a_damaged_manifest_says_nothing(name: str, content: str) -> None:
    graph = Graph(Repository({name: content, "a.ts": "import { b } from 'b'; b()", "src/b.rs": "use b::c; fn d() {}"}))
    assert graph.uses(graph.find("d")) == []
