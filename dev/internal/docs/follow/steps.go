//go:build unix

package follow

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel-go/evenkeel/dev/internal/docs"
)

// A step is one block that is saved or run.
type step struct {
	line       int // of the block in the page
	text       string
	file       string // save the block under this name; nothing is run
	background bool
	expect     []string
	until      string
}

// steps returns the steps of a page.
func steps(page docs.Page) ([]step, error) {
	var (
		all  []step
		errs []error
	)
	for _, block := range page.Blocks {
		s, ok, err := stepOf(block)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", block.Line, err))
		} else if ok {
			all = append(all, s)
		}
	}
	if len(all) == 0 && len(errs) == 0 {
		return nil, errors.New("the page has nothing to follow: mark its commands as ```sh")
	}
	return all, errors.Join(errs...)
}

// stepOf returns the step of a block. ok is false if the block has no step.
func stepOf(block docs.Block) (s step, ok bool, err error) {
	s = step{line: block.Line, text: block.Text}
	files, runs := block.Marked("file"), block.Marked("run")
	switch {
	case len(files) > 1 || len(files) == 1 && len(runs) > 0:
		return s, false, errors.New("the block has a file comment and another comment about the same thing: keep one")
	case len(files) == 1:
		s.file = filepath.FromSlash(files[0])
		if !filepath.IsLocal(s.file) {
			return s, false, fmt.Errorf("the file comment names %q: write a path below the page's folder", files[0])
		}
		return s, true, nil
	case slices.Contains([]string{"bash", "shell", "zsh"}, block.Lang):
		return s, false, fmt.Errorf("a %s block is not run: call it sh, or console where it shows a session",
			block.Lang)
	case block.Lang != "sh" && len(runs) > 0:
		return s, false, errors.New("the block has a run comment but is not an sh block: call it sh, or remove " +
			"the comment")
	case block.Lang != "sh":
		return s, false, nil
	}
	skip := false
	for _, run := range runs {
		no, err := s.options(run)
		if err != nil {
			return s, false, fmt.Errorf("the comment run: %s: %w", run, err)
		}
		skip = skip || no
	}
	return s, !skip, nil
}

// options parses one run comment into the step. no is true if the block must not be run.
func (s *step) options(text string) (no bool, err error) {
	for text = strings.TrimLeft(text, ", "); text != ""; text = strings.TrimLeft(text, ", ") {
		word := text
		if end := strings.IndexAny(text, ", "); end >= 0 {
			word = text[:end]
		}
		text = text[len(word):]
		switch word {
		case "no":
			if strings.Trim(text, ", ") == "" {
				return false, errors.New("the reason is missing: write no, REASON")
			}
			return true, nil
		case "background":
			s.background = true
		case "expect", "until":
			quoted, err := strconv.QuotedPrefix(strings.TrimSpace(text))
			if err != nil {
				return false, fmt.Errorf("%s wants a text in double quotes", word)
			}
			_, text, _ = strings.Cut(text, quoted)
			want, err := strconv.Unquote(quoted)
			if err != nil || want == "" {
				return false, fmt.Errorf("%s wants a text in double quotes, not an empty one", word)
			}
			if word == "until" {
				s.until = want
			} else {
				s.expect = append(s.expect, want)
			}
		default:
			return false,
				fmt.Errorf("%q is unknown: use background, expect \"text\", until \"text\" or no, REASON", word)
		}
	}
	return false, nil
}
