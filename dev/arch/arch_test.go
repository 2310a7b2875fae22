package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// root is the folder of the main module, relative to this package.
const root = "../.."

// TestImports checks the imports of the main module's packages against the layers table. The go command lists the imports,
// so build constraints count; the sources are read by the other tests here, which is what makes go test notice a change.
func TestImports(t *testing.T) {
	t.Parallel()
	for _, problem := range checkImports(listPackages(t)) {
		t.Error(problem)
	}
}

// Go types that only some programs need are large, and a package that is imported is linked with its types. The root
// package has Install for definitions, and must not import them.
func TestRootPackageLinksNoDefinitions(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		if relative(p.ImportPath) != "." {
			continue
		}
		for _, dependency := range p.Deps {
			if strings.HasPrefix(dependency, "k8s.io/apiextensions-apiserver/") {
				t.Errorf("every program that imports the root package links %s", dependency)
			}
		}
	}
}

// TestSources checks each file of the main module by the rules of checkFile.
func TestSources(t *testing.T) {
	t.Parallel()
	files := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("looking for Go files: %w", err)
		}
		if entry.IsDir() {
			return enter(path, entry)
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an editor's file that is gone again
		}
		if err != nil {
			return fmt.Errorf("reading a Go file: %w", err)
		}
		for _, problem := range checkFile(strings.TrimPrefix(filepath.ToSlash(path), root+"/"), text) {
			t.Error(problem)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files == 0 {
		t.Fatalf("no Go file was found below %s", root)
	}
}

// enter reports whether a folder belongs to the main module: hidden folders, testdata and other modules do not.
func enter(path string, entry fs.DirEntry) error {
	if path == root {
		return nil
	}
	if name := entry.Name(); strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Name,Imports,Deps,TestImports,XTestImports", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("listing the packages of the main module: %v\n%s", err, stderr.String())
	}
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("reading the output of go list: %v", err)
		}
		packages = append(packages, p)
	}
	if len(packages) == 0 {
		t.Fatal("go list found no package in the main module")
	}
	return packages
}
