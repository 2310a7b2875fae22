package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// verdict is a person's text about a mutant that survived: the test that was added, or a reason to add none.
type verdict struct {
	id     string
	change []string // the lines that describe the mutant, for readers
	test   string
	reason string
}

// readVerdicts reads a file of blocks that are separated by empty lines. The first line of a block starts with the
// mutant's ID, and a line that starts with "test:" or "reason:" begins a text that goes on until the block ends. Lines
// that start with # are comments. A missing file has no verdicts.
func readVerdicts(name string) ([]verdict, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []verdict
	seen := map[string]bool{}
	for part := range strings.SplitSeq(string(text), "\n\n") {
		v, err := parseVerdict(part)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if v.id == "" {
			continue
		}
		if seen[v.id] {
			return nil, fmt.Errorf("%s: two verdicts on %s", name, v.id)
		}
		seen[v.id] = true
		all = append(all, v)
	}
	return all, nil
}

func parseVerdict(part string) (verdict, error) {
	var v verdict
	var field *string
	for line := range strings.Lines(part) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, ":")
		switch {
		case v.id == "":
			v.id, _, _ = strings.Cut(line, " ")
			if !strings.Contains(v.id, "-") {
				return v, fmt.Errorf("a verdict starts with a mutant's ID, not with %q", line)
			}
		case name == "test":
			field = &v.test
			*field = strings.TrimSpace(rest)
		case name == "reason":
			field = &v.reason
			*field = strings.TrimSpace(rest)
		case field == nil:
			v.change = append(v.change, line)
		default:
			*field = strings.TrimSpace(*field + " " + line)
		}
	}
	return v, nil
}

// explains reports whether the verdict explains a mutant that survives. A test does not: it should have killed the
// mutant.
func (v verdict) explains() bool { return v.reason != "" }

// addVerdicts appends an empty verdict for each mutant to the file.
func addVerdicts(name string, mutants []*mutant) error {
	if len(mutants) == 0 {
		return nil
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, m := range mutants {
		fmt.Fprintf(&text, "\n%s %s in %s, %s\n- %s\n+ %s\nreason:\n", m.ID, m.Operator, m.Function, m.File, m.Before,
			m.After)
	}
	_, err = file.WriteString(text.String())
	return errors.Join(err, file.Close())
}
