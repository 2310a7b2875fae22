package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
)

// edit replaces the bytes from start to end of a file by text.
type edit struct {
	start, end int
	text       string
}

// mutant is one change of one file.
type mutant struct {
	ID        string
	Package   string // import path
	File      string // relative to the module's folder
	Function  string
	Operator  string
	Line      int
	Statement string // the changed statement on one line, without the bodies of function literals
	Before    string // the changed lines, as one line
	After     string

	pkg    *loadedPackage
	file   *sourceFile
	column int
	edits  []edit // edits[0] is the change; the others only keep the file compiling
}

// mutated returns the file's text with all edits made.
func (m *mutant) mutated() []byte {
	edits := slices.Clone(m.edits)
	slices.SortStableFunc(edits, func(a, b edit) int { return b.start - a.start })
	text := m.file.text
	for _, e := range edits {
		text = slices.Concat(text[:e.start], []byte(e.text), text[e.end:])
	}
	return text
}

// packageKey identifies a package by its path in the module without folders named internal: a package that moves below
// internal/ keeps its key.
func packageKey(modulePath, importPath string) string {
	key := strings.TrimPrefix(strings.TrimPrefix(importPath, modulePath), "/")
	parts := strings.Split(key, "/")
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "internal" })
	if key == "" {
		return path.Base(modulePath)
	}
	return strings.Join(parts, "/")
}

// identify sets the IDs of all mutants. An ID depends on the package, the function, the operator, the statement's text
// and the change, so that it survives edits elsewhere in the file. Equal changes of equal statements in one function
// are numbered.
func identify(modulePath string, mutants []*mutant) {
	seen := map[string]int{}
	for _, m := range mutants {
		key := packageKey(modulePath, m.Package)
		change := m.edits[0]
		parts := strings.Join([]string{
			key, m.Function, m.Operator, m.Statement,
			oneLine(m.file.text[change.start:change.end]), oneLine([]byte(change.text)),
		}, "\x00")
		nth := seen[parts]
		seen[parts]++
		if nth > 0 {
			parts += fmt.Sprintf("\x00%d", nth)
		}
		sum := sha256.Sum256([]byte(parts))
		m.ID = path.Base(key) + "-" + hex.EncodeToString(sum[:4])
	}
}

// describe sets Before and After: the lines that the change touches, each as one line of at most 200 bytes.
func (m *mutant) describe(shown string) {
	change, text := m.edits[0], m.file.text
	start := bytes.LastIndexByte(text[:change.start], '\n') + 1
	end := len(text)
	if i := bytes.IndexByte(text[change.end:], '\n'); i >= 0 {
		end = change.end + i
	}
	m.Before = oneLine(text[start:end])
	m.After = oneLine(slices.Concat(text[start:change.start], []byte(shown), text[change.end:end]))
	if m.After == "" {
		m.After = "(removed)"
	}
	m.Before, m.After = aroundDifference(m.Before, m.After)
}

// aroundDifference cuts two long lines so that the place where they differ stays visible.
func aroundDifference(before, after string) (shortBefore, shortAfter string) {
	const most, lead = 200, 60
	same := 0
	for same < min(len(before), len(after)) && before[same] == after[same] {
		same++
	}
	cut := func(line string) string {
		if from := max(0, same-lead); len(line) > most && from > 0 {
			line = "..." + line[from:]
		}
		if len(line) > most {
			line = line[:most] + "..."
		}
		return strings.ToValidUTF8(line, "")
	}
	return cut(before), cut(after)
}

func oneLine(text []byte) string { return strings.Join(strings.Fields(string(text)), " ") }

func (m *mutant) String() string {
	return fmt.Sprintf("%s %s in %s, %s\n- %s\n+ %s", m.ID, m.Operator, m.Function, m.File, m.Before, m.After)
}
