package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// goPackage is the part of go list's output that is used.
type goPackage struct {
	ImportPath string
	Dir        string
	Export     string
	GoFiles    []string
	DepOnly    bool
	Deps       []string
	Module     *struct{ Path, Dir string }
}

// loadedPackage is a package with its syntax and types.
type loadedPackage struct {
	goPackage

	fset  *token.FileSet
	files []*sourceFile
	info  *types.Info
	types *types.Package
}

type sourceFile struct {
	path   string // absolute
	text   []byte
	syntax *ast.File
}

// goList runs go list in dir and decodes its output.
func goList(ctx context.Context, dir string, args ...string) ([]goPackage, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list"}, args...)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("decode the output of go list: %w", err)
		}
		packages = append(packages, p)
	}
}

// load parses and type-checks the packages that match the patterns. Dependencies are read from the build cache.
func load(ctx context.Context, dir string, patterns []string) ([]*loadedPackage, error) {
	fields := "-json=ImportPath,Dir,Export,GoFiles,DepOnly,Module"
	packages, err := goList(ctx, dir, append([]string{fields, "-export", "-deps", "--"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("package %s has no export data", path)
		}
		return os.Open(exports[path])
	})
	var loaded []*loadedPackage
	for _, p := range packages {
		if p.DepOnly || len(p.GoFiles) == 0 {
			continue
		}
		l, err := check(fset, imports, p)
		if err != nil {
			return nil, err
		}
		loaded = append(loaded, l)
	}
	slices.SortFunc(loaded, func(a, b *loadedPackage) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	return loaded, nil
}

func check(fset *token.FileSet, imports types.Importer, p goPackage) (*loadedPackage, error) {
	l := &loadedPackage{goPackage: p, fset: fset, info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{},
		Uses:  map[*ast.Ident]types.Object{},
		Defs:  map[*ast.Ident]types.Object{},
	}}
	syntax := make([]*ast.File, 0, len(p.GoFiles))
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		syntax = append(syntax, file)
		l.files = append(l.files, &sourceFile{path: path, text: text, syntax: file})
	}
	config := types.Config{Importer: imports}
	var err error
	if l.types, err = config.Check(p.ImportPath, fset, syntax, l.info); err != nil {
		return nil, fmt.Errorf("type-check %s: %w", p.ImportPath, err)
	}
	return l, nil
}
