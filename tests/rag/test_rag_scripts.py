"""The graph of JavaScript and TypeScript: blocks, destructuring, the packages of a workspace."""

import pytest

from ..support.repositories import expect


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
        --- packages/client/tsconfig.json
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
