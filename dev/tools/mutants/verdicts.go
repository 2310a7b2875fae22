package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// readVerdicts returns the reasons why mutants may survive, by the mutants' IDs. The file has blocks that are separated
// by empty lines. A block starts with the mutant's ID and ends with its reason; the lines between show the mutant.
// Lines that start with # are comments. A missing file has no verdicts.
func readVerdicts(name string) (map[string]string, error) {
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	reasons := map[string]string{}
	withoutComments := regexp.MustCompile("(?m)^#.*\n?").ReplaceAllString(string(text), "")
	for part := range strings.SplitSeq(withoutComments, "\n\n") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		id := strings.Fields(part)[0]
		_, reason, _ := strings.Cut(part, "\nreason:")
		reason = strings.Join(strings.Fields(reason), " ")
		if !strings.Contains(id, "-") || reason == "" || reasons[id] != "" {
			return nil, fmt.Errorf("%s: a verdict is a mutant's ID and, once, its reason, not %q", name, part)
		}
		reasons[id] = reason
	}
	return reasons, nil
}
