package docs

import (
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// PathTable returns the text of a block with a path marker: functions in reading order, each with its number of lines,
// and their sum. It takes the functions from the block's present text, one a line, as NUMBER FOLDER/FILE.go:
// Type.Method, and returns that text with new numbers. Lines without a function are titles, and are kept. A function
// that was moved is found in its new file: by its name in the same folder, or in the whole repository if only one
// package has it. If a method has another receiver, it is found in the same folder by the method's name, if only one
// function has it.
func PathTable(root, text string) (table string, sum PathSum, err error) {
	found, err := functions(root)
	if err != nil {
		return "", PathSum{}, err
	}
	entry := regexp.MustCompile(`^\s*\d*\s+(\S+)/(\w+\.go): ([\w.]+)$`)
	total := regexp.MustCompile(`^\s*\d+  lines in`)
	files := map[string]bool{}
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		m := entry.FindStringSubmatch(line)
		switch {
		case total.MatchString(line):
			continue
		case m == nil:
			out.WriteString(line + "\n")
			continue
		}
		f, err := found.find(m[1], m[2], m[3])
		if err != nil {
			return "", PathSum{}, err
		}
		fmt.Fprintf(&out, "%6d  %s: %s\n", f.lines, f.file, f.name)
		files[f.file] = true
		sum.Lines, sum.Functions, sum.Files = sum.Lines+f.lines, sum.Functions+1, len(files)
	}
	if sum.Functions == 0 {
		return "", PathSum{}, fmt.Errorf("the path has no functions: write one a line, as NUMBER  FILE: NAME")
	}
	fmt.Fprintf(&out, "%6d  lines in %d functions and %d files\n", sum.Lines, sum.Functions, sum.Files)
	return out.String(), sum, nil
}

// PathSum is the size of a path.
type PathSum struct {
	Lines, Functions, Files int
}

// function is a function or method of the root module. Its name is "Type.Method" for a method.
type function struct {
	file, name string
	lines      int // from func to the closing brace
}

type functionList []function

// find returns the function with that name, by the rules of PathTable.
func (l functionList) find(folder, file, name string) (function, error) {
	bare := func(name string) string { return name[strings.LastIndex(name, ".")+1:] }
	for _, matches := range []func(f function) bool{
		func(f function) bool { return f.name == name && f.file == path.Join(folder, file) },
		func(f function) bool { return f.name == name && path.Dir(f.file) == folder },
		func(f function) bool { return f.name == name },
		func(f function) bool { return bare(f.name) == bare(name) && path.Dir(f.file) == folder },
	} {
		var found []function
		for _, f := range l {
			if matches(f) {
				found = append(found, f)
			}
		}
		if len(found) == 1 {
			return found[0], nil
		}
	}
	return function{}, fmt.Errorf("function %s is not in %s/%s: correct the line in the block, or remove it",
		name, folder, file)
}

// functions returns all functions of the root module, without tests.
func functions(root string) (functionList, error) {
	var list functionList
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name), "go.mod"))
			if name != "." && (err == nil || entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := goparser.ParseFile(set, filepath.Join(root, filepath.FromSlash(name)), nil,
			goparser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			full := f.Name.Name
			if f.Recv != nil && len(f.Recv.List) == 1 {
				full = receiver(f.Recv.List[0].Type) + "." + full
			}
			lines := set.Position(f.End()).Line - set.Position(f.Type.Pos()).Line + 1
			list = append(list, function{file: name, name: full, lines: lines})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the functions of the repository: %w", err)
	}
	return list, nil
}
