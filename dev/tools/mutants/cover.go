package main

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"strings"
)

// block is a range of a file that one counter of a coverage profile stands for.
type block struct {
	startLine, startColumn, endLine, endColumn int
	covered                                    bool
}

// profile is a coverage profile: blocks by "import path/file.go".
type profile map[string][]block

func readProfile(name string) (profile, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found := profile{}
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		at, rest, ok := strings.Cut(scanner.Text(), ".go:")
		if !ok {
			continue // the line with the mode
		}
		var b block
		var statements, count int
		_, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.startLine, &b.startColumn, &b.endLine, &b.endColumn,
			&statements, &count)
		if err != nil {
			return nil, fmt.Errorf("coverage profile %s: line %q: %w", name, scanner.Text(), err)
		}
		b.covered = count > 0
		found[at+".go"] = append(found[at+".go"], b)
	}
	return found, scanner.Err()
}

// covers reports whether the tests reach the mutant. Code outside of all blocks (declarations of the package,
// conditions of cases) counts as reached if any part of the file is.
func (p profile) covers(m *mutant) bool {
	inBlock, reached, anywhere := false, false, false
	for _, b := range p[m.Package+"/"+path.Base(m.File)] {
		anywhere = anywhere || b.covered
		afterStart := m.Line > b.startLine || m.Line == b.startLine && m.column >= b.startColumn
		beforeEnd := m.Line < b.endLine || m.Line == b.endLine && m.column < b.endColumn
		if afterStart && beforeEnd {
			inBlock = true
			reached = reached || b.covered
		}
	}
	if !inBlock {
		return anywhere
	}
	return reached
}
