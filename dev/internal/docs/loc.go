package docs

import (
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// A Program is code that is counted for a comparison.
type Program struct {
	Title string
	// Paths are Go files, and folders that are counted with the folders in them, from the repository's root.
	Paths []string
}

// A CodeFile is a Go file and how many lines of code it has.
type CodeFile struct {
	Path  string
	Lines int
}

// ParsePrograms reads the value of a loc or uses marker:
//
//	TITLE = PATH PATH ...; TITLE = PATH ...
func ParsePrograms(value string) ([]Program, error) {
	var programs []Program
	for text := range strings.SplitSeq(value, ";") {
		title, paths, ok := strings.Cut(text, "=")
		p := Program{Title: strings.TrimSpace(title), Paths: strings.Fields(paths)}
		if !ok || p.Title == "" || len(p.Paths) == 0 {
			return nil, fmt.Errorf("the marker has %q: write TITLE = PATH PATH; TITLE = PATH",
				strings.TrimSpace(text))
		}
		programs = append(programs, p)
	}
	return programs, nil
}

// CodeTable returns what stands in a block with a loc marker: for each program its files, each with its lines of code,
// and their sum.
func CodeTable(root string, programs []Program) (string, error) {
	var out strings.Builder
	for i, p := range programs {
		files, err := p.Count(root)
		if err != nil {
			return "", err
		}
		if i > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintln(&out, p.Title)
		sum := 0
		for _, file := range files {
			fmt.Fprintf(&out, "%6d  %s\n", file.Lines, file.Path)
			sum += file.Lines
		}
		fmt.Fprintf(&out, "%6d  in all\n", sum)
	}
	return out.String(), nil
}

// Count returns the program's files with their lines of code, sorted within each path. Not counted are tests and
// folders whose name ends in test, folders named api, because the types of a custom resource are the same whatever
// the operator is written on, and what the go command ignores. It refuses a path without any code: most likely it is
// misspelt.
func (p Program) Count(root string) ([]CodeFile, error) {
	var files []CodeFile
	for _, start := range p.Paths {
		if !fs.ValidPath(start) {
			return nil,
				fmt.Errorf("the marker names %q: write a path from the repository's root, with slashes", start)
		}
		before := len(files)
		err := fs.WalkDir(os.DirFS(root), start, func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() {
				if name != start && !hasOwnCode(entry.Name()) {
					return fs.SkipDir
				}
				return nil
			}
			if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return nil
			}
			text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
			if err != nil {
				return err
			}
			lines, err := CountLines(name, text)
			files = append(files, CodeFile{Path: name, Lines: lines})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("counting the lines of %s: %w", p.Title, err)
		}
		if len(files) == before {
			return nil, fmt.Errorf("counting the lines of %s: %s has no Go code", p.Title, start)
		}
	}
	return files, nil
}

func hasOwnCode(folder string) bool {
	return folder != "api" && folder != "testdata" && !strings.HasSuffix(folder, "test") &&
		!strings.HasPrefix(folder, ".") && !strings.HasPrefix(folder, "_")
}

// CountLines returns how many lines of a Go file have code on them: neither blank lines nor those with nothing but a
// comment. Imports count, and so do all lines of a literal that has several. Name is for errors.
func CountLines(name string, text []byte) (int, error) {
	file := token.NewFileSet().AddFile(name, -1, len(text))
	var errs scanner.ErrorList
	var s scanner.Scanner
	s.Init(file, text, errs.Add, 0) // without ScanComments: comments are skipped
	count, last := 0, 0
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && literal != ";" {
			continue // the scanner's own, at the end of a line
		}
		first := file.Line(pos)
		end := first + strings.Count(literal, "\n")
		count += end - max(first-1, last)
		last = end
	}
	if err := errs.Err(); err != nil {
		return 0, errors.Join(errors.New("this is not Go"), err)
	}
	return count, nil
}
