// Prints every use of every definition of a Go module, by the type checker of the standard library:
// name, place of the definition, place of the use. What other modules define stays unknown.
package main

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

type importing func(string) (*types.Package, error)

func (find importing) Import(path string) (*types.Package, error) { return find(path) }

type module struct {
	root, name string
	files      *token.FileSet
	known      map[string]*types.Package
	info       *types.Info
	config     types.Config
}

func main() {
	m := &module{root: os.Args[1], name: os.Args[2], files: token.NewFileSet(), known: map[string]*types.Package{}}
	m.info = &types.Info{Uses: map[*ast.Ident]types.Object{}}
	standard := importer.ForCompiler(m.files, "source", nil)
	m.config = types.Config{FakeImportC: true, Error: func(error) {}, Importer: importing(func(path string) (*types.Package, error) {
		if path == m.name || strings.HasPrefix(path, m.name+"/") {
			return m.load(path), nil
		}
		if strings.Contains(strings.Split(path, "/")[0], ".") {
			return types.NewPackage(path, filepath.Base(path)), nil
		}
		return standard.Import(path)
	})}
	filepath.WalkDir(m.root, func(folder string, entry fs.DirEntry, _ error) error {
		if entry.IsDir() {
			below, _ := filepath.Rel(m.root, folder)
			m.check(strings.TrimSuffix(m.name+"/"+below, "/."), folder)
		}
		return nil
	})
	m.print()
}

// load checks a package without its tests, for those that import it.
func (m *module) load(path string) *types.Package {
	if found, ok := m.known[path]; ok {
		return found
	}
	for name, files := range m.parse(filepath.Join(m.root, strings.TrimPrefix(path, m.name)), false) {
		if found, _ := m.config.Check(path, m.files, files, m.info); found != nil && (name != "main" || m.known[path] == nil) {
			m.known[path] = found
		}
	}
	if m.known[path] == nil {
		m.known[path] = types.NewPackage(path, filepath.Base(path))
	}
	return m.known[path]
}

// check checks the packages of a folder together with their tests.
func (m *module) check(path, folder string) {
	for _, files := range m.parse(folder, true) {
		m.config.Check(path, m.files, files, m.info)
	}
}

func (m *module) parse(folder string, tests bool) map[string][]*ast.File {
	packages := map[string][]*ast.File{}
	names, _ := filepath.Glob(filepath.Join(folder, "*.go"))
	for _, name := range names {
		if file, err := parser.ParseFile(m.files, name, nil, parser.SkipObjectResolution); err == nil {
			if tests || !strings.HasSuffix(name, "_test.go") {
				packages[file.Name.Name] = append(packages[file.Name.Name], file)
			}
		}
	}
	return packages
}

func (m *module) print() {
	seen := map[string]bool{}
	for use, what := range m.info.Uses {
		if function, ok := what.(*types.Func); ok {
			what = function.Origin()
		}
		if !what.Pos().IsValid() {
			continue
		}
		line := what.Name() + "\t" + m.place(what.Pos()) + "\t" + m.place(use.Pos())
		if !seen[line] {
			seen[line] = true
			fmt.Println(line)
		}
	}
}

func (m *module) place(at token.Pos) string {
	where := m.files.Position(at)
	below, _ := filepath.Rel(m.root, where.Filename)
	return fmt.Sprintf("%s:%d", below, where.Line)
}
