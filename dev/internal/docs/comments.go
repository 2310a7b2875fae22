package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/doc/comment"
	goparser "go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A CommentBlock is a code block of a doc comment: lines that are indented in it.
type CommentBlock struct {
	File string // from the repository's root, with slashes
	Line int    // where the comment begins
	Text string // without the indentation
}

// First returns the block's first line, by which it is named.
func (b CommentBlock) First() string {
	first, _, _ := strings.Cut(b.Text, "\n")
	return strings.TrimSpace(first)
}

// CommentBlocks returns the code blocks in all comments below root that stand outside of functions' bodies: those of
// packages, of declarations and of fields. Comments of tests are not read by users, and not by this function.
func CommentBlocks(root string) ([]CommentBlock, error) {
	var blocks []CommentBlock
	err := goFiles(root, func(name string) error {
		if strings.HasSuffix(name, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := goparser.ParseFile(set, filepath.Join(root, filepath.FromSlash(name)), nil,
			goparser.ParseComments|goparser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, group := range file.Comments {
			if inBody(file, group) {
				continue
			}
			for _, content := range new(comment.Parser).Parse(group.Text()).Content {
				if code, ok := content.(*comment.Code); ok {
					blocks = append(blocks, CommentBlock{
						File: name, Line: set.Position(group.Pos()).Line,
						Text: code.Text,
					})
				}
			}
		}
		return nil
	})
	return blocks, err
}

// CheckComments returns the problems of the code blocks in all comments below root, one sentence each. Each block must
// be Go code of a test file in the same folder, or be listed in others by "FILE: FIRST LINE", with a description.
func CheckComments(root string, listed map[string]string) ([]string, error) {
	blocks, err := CommentBlocks(root)
	if err != nil {
		return nil, err
	}
	var problems []string
	tests := map[string][][]string{} // by folder
	unused := maps.Clone(listed)
	for _, b := range blocks {
		name := b.File + ": " + b.First()
		delete(unused, name)
		if what, other := listed[name]; other {
			if isGo(b.Text) {
				problems = append(problems,
					fmt.Sprintf("%s:%d: the block that begins with %q is said to be %s, and is Go code",
						b.File, b.Line, b.First(), what))
			}
			continue
		}
		folder := path.Dir(b.File)
		if _, read := tests[folder]; !read {
			if tests[folder], err = testDeclarations(root, folder); err != nil {
				return nil, err
			}
		}
		pieces := piecesOf(b.Text)
		if !slices.ContainsFunc(tests[folder], func(declaration []string) bool {
			return hasInOrder(declaration, pieces)
		}) {
			problems = append(problems, fmt.Sprintf("%s:%d: no test in %s has the code that begins with %q: put it "+
				"into an Example there (a line of three dots stands for omitted code), or, if it is not Go code, "+
				"describe it "+
				"in the test of package docs",
				b.File, b.Line, folder, b.First()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		problems = append(problems, fmt.Sprintf("%s: there is no such block any longer", name))
	}
	return problems, nil
}

// isGo reports whether a text can be read as statements or declarations.
func isGo(text string) bool {
	for _, file := range []string{"package p\nfunc f() {\n" + text + "\n}", "package p\n" + text} {
		if _, err := goparser.ParseFile(token.NewFileSet(), "", file, goparser.SkipObjectResolution); err == nil {
			return true
		}
	}
	return false
}

// goFiles calls visit for each Go file that the go command does not ignore by its folder.
func goFiles(root string, visit func(name string) error) error {
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (base == "testdata" || name != "." && strings.HasPrefix(base, ".") ||
			strings.HasPrefix(base, "_")):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		return visit(name)
	})
	if err != nil {
		return fmt.Errorf("reading the Go files: %w", err)
	}
	return nil
}

func inBody(file *ast.File, group *ast.CommentGroup) bool {
	return slices.ContainsFunc(file.Decls, func(decl ast.Decl) bool {
		f, ok := decl.(*ast.FuncDecl)
		return ok && f.Body != nil && f.Body.Pos() < group.Pos() && group.End() < f.Body.End()
	})
}

// testDeclarations returns the tokens of each function, variable, type and constant of a folder's tests.
func testDeclarations(root, folder string) ([][]string, error) {
	dir := filepath.Join(root, filepath.FromSlash(folder))
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, fmt.Errorf("looking for the tests of %s: %w", folder, err)
	}
	var declarations [][]string
	var errs []error
	for _, name := range files {
		if match, err := build.Default.MatchFile(dir, filepath.Base(name)); err != nil || !match {
			errs = append(errs, err)
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		set := token.NewFileSet()
		file, err := goparser.ParseFile(set, name, text, goparser.SkipObjectResolution)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, decl := range file.Decls {
			declarations = append(declarations,
				tokensOf(string(text[set.Position(decl.Pos()).Offset:set.Position(decl.End()).Offset])))
		}
	}
	return declarations, errors.Join(errs...)
}

// piecesOf returns the tokens of a block, cut at each line of three dots.
func piecesOf(text string) [][]string {
	var pieces [][]string
	var piece strings.Builder
	end := func() {
		if tokens := tokensOf(piece.String()); len(tokens) > 0 {
			pieces = append(pieces, tokens)
		}
		piece.Reset()
	}
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "..." {
			end()
			continue
		}
		piece.WriteString(line)
	}
	end()
	return pieces
}

// tokensOf returns the tokens of a piece of Go code without comments and space, and without the semicolon that the end
// of the last line stands for.
func tokensOf(text string) []string {
	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile("", -1, len(text)), []byte(text), nil, 0)
	var tokens []string
	for {
		_, kind, literal := s.Scan()
		if kind == token.EOF {
			return slices.Delete(tokens, lastOf(tokens, ";"), len(tokens))
		}
		switch {
		case kind == token.SEMICOLON:
			tokens = append(tokens, ";")
		case literal != "":
			tokens = append(tokens, literal)
		default:
			tokens = append(tokens, kind.String())
		}
	}
}

// lastOf returns where the last token is if it is that one, otherwise where the tokens end.
func lastOf(tokens []string, last string) int {
	if n := len(tokens); n > 0 && tokens[n-1] == last {
		return n - 1
	}
	return len(tokens)
}

// hasInOrder reports whether each piece is found in the tokens, behind the one before it.
func hasInOrder(tokens []string, pieces [][]string) bool {
	for _, piece := range pieces {
		at := 0
		for ; ; at++ {
			if at+len(piece) > len(tokens) {
				return false
			}
			if slices.Equal(tokens[at:at+len(piece)], piece) {
				break
			}
		}
		tokens = tokens[at+len(piece):]
	}
	return len(pieces) > 0
}
