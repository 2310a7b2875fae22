package docs

import (
	"errors"
	"fmt"
	"go/build"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
)

// CheckCode returns the problems of the Go samples and tables of a page, one sentence each. Root is the repository's
// folder, and the base of the paths in markers.
func CheckCode(root string, page Page) []string {
	var problems []string
	for _, b := range page.Blocks {
		want, marked, err := sampleOf(root, b)
		switch {
		case err != nil:
			problems = append(problems, fmt.Sprintf("line %d: %v", b.Line, err))
		case marked && want != b.Text:
			source := strings.Join(
				slices.Concat(b.Marked("code"), b.Marked("loc"), b.Marked("uses"), b.Marked("path")), "")
			problems = append(problems,
				fmt.Sprintf("line %d: the block is not %s: %s; change its source, then run make docs",
					b.Line, source, firstDifference(b.Text, want)))
		}
	}
	return problems
}

// Rewrite returns the page's text with each marked sample copied from its file, and each table made anew.
func Rewrite(root, text string) (string, error) {
	page, err := Parse(text)
	if err != nil {
		return "", err
	}
	lines := strings.Split(text, "\n")
	var errs []error
	for _, b := range slices.Backward(page.Blocks) { // from the end, so that earlier line numbers stay right
		want, marked, err := sampleOf(root, b)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", b.Line, err))
		}
		if err != nil || !marked {
			continue
		}
		content := strings.Split(strings.TrimSuffix(want, "\n"), "\n")
		for i, line := range content {
			if line != "" {
				content[i] = b.indent + line
			}
		}
		lines = slices.Replace(lines, b.from, b.to, content...)
	}
	return strings.Join(lines, "\n"), errors.Join(errs...)
}

// sampleOf returns the required text of a block, if it is marked as a sample, a table of lines of code, a table of used
// names, or a path.
func sampleOf(root string, b Block) (text string, marked bool, err error) {
	refs, counted, paths, uses := b.Marked("code"), b.Marked("loc"), b.Marked("path"), b.Marked("uses")
	switch {
	case len(refs)+len(counted)+len(paths)+len(uses) > 1:
		return "", false, errors.New("the block has two markers for its content: keep one")
	case len(counted) == 1:
		programs, err := ParsePrograms(counted[0])
		if err != nil {
			return "", false, err
		}
		text, err = CodeTable(root, programs)
		return text, err == nil, err
	case len(uses) == 1:
		programs, err := ParsePrograms(uses[0])
		if err != nil {
			return "", false, err
		}
		text, err = UsesTable(root, programs, b.Text, testlength.Count(0, 1) == 1)
		return text, err == nil, err
	case len(paths) == 1:
		text, _, err = PathTable(root, b.Text)
		return text, err == nil, err
	case len(refs) == 1:
		text, err = sample(root, refs[0], b.Lang)
		return text, err == nil, err
	case b.Lang == "go" && len(b.Marked("file")) > 0:
		return "", false, nil // a test that follows the page compiles it; TestPages requires such a test
	case b.Lang == "go":
		return "", false,
			errors.New("a Go block must be code that is compiled: put it into a file of examples/ or an " +
				"Example test, and name it directly above the block: <!-- code: PATH#REGION -->")
	default:
		return "", false, nil
	}
}

// sample reads the code of ref, which is PATH or PATH#REGION.
func sample(root, ref, lang string) (string, error) {
	name, region, _ := strings.Cut(ref, "#")
	if !fs.ValidPath(name) {
		return "", fmt.Errorf("the code marker names %q: write a path from the repository's root, with slashes", name)
	}
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return "", fmt.Errorf("reading the file of a sample: %w", err)
	}
	if lang == "go" {
		if err := compiled(root, name); err != nil {
			return "", err
		}
	}
	cut, err := cutRegion(string(text), region)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return cut, nil
}

// compiled returns an error unless make test compiles a file: the file must be in the root module, in examples or in
// simulation, and no build constraint or folder name may exclude it.
func compiled(root, name string) error {
	if path.Ext(name) != ".go" {
		return fmt.Errorf("a Go sample comes from %s, which is not a Go file", name)
	}
	dir := path.Dir(name)
	for part := range strings.SplitSeq(dir, "/") {
		if part == "testdata" || strings.HasPrefix(part, "_") || part != "." && strings.HasPrefix(part, ".") {
			return fmt.Errorf("%s is in %s, which the go command ignores: move it to where it is compiled", name, part)
		}
	}
	module := moduleOf(root, dir)
	if !slices.Contains(append(compiledModules(), "simulation/controllerruntime"), module) {
		return fmt.Errorf("%s is in module %s, whose packages make test does not compile: move it to examples", name,
			module)
	}
	match, err := build.Default.MatchFile(filepath.Join(root, filepath.FromSlash(dir)), path.Base(name))
	if err != nil {
		return fmt.Errorf("reading the build constraints of a sample: %w", err)
	}
	if !match {
		return fmt.Errorf("%s is left out of the build by its name or its build constraint: remove that", name)
	}
	return nil
}

// compiledModules returns the folders of the modules that make test compiles.
func compiledModules() []string {
	return []string{".", "examples", "examples/webapp", "simulation", "dev/integration"}
}

// cutRegion returns the text between // region NAME and its // endregion, or all text if the name is empty, without
// region lines and without common indentation.
func cutRegion(text, name string) (string, error) {
	var (
		open  []string // the regions around the line, outermost first
		known []string
		kept  []string
	)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		comment := strings.TrimSpace(line)
		if region, ok := strings.CutPrefix(comment, "// region "); ok {
			open = append(open, strings.TrimSpace(region))
			known = append(known, strings.TrimSpace(region))
			continue
		}
		if comment == "// endregion" {
			if len(open) == 0 {
				return "", errors.New("an // endregion without a region: remove it")
			}
			open = open[:len(open)-1]
			continue
		}
		if name == "" || slices.Contains(open, name) {
			kept = append(kept, line)
		}
	}
	if len(open) > 0 {
		return "", fmt.Errorf("region %s has no end: add // endregion", open[len(open)-1])
	}
	if name != "" && !slices.Contains(known, name) {
		return "", fmt.Errorf("it has no // region %s; its regions are: %s", name, strings.Join(known, ", "))
	}
	return dedent(kept), nil
}

// dedent removes blank lines at both ends, and the indentation that all lines share.
func dedent(lines []string) string {
	blank := func(line string) bool { return strings.TrimSpace(line) == "" }
	for len(lines) > 0 && blank(lines[0]) {
		lines = lines[1:]
	}
	for len(lines) > 0 && blank(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	if len(lines) == 0 {
		return ""
	}
	shared := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], "\t "))]
	for _, line := range lines {
		for !blank(line) && !strings.HasPrefix(line, shared) {
			shared = shared[:len(shared)-1]
		}
	}
	var out strings.Builder
	for _, line := range lines {
		if !blank(line) {
			out.WriteString(strings.TrimPrefix(line, shared))
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func firstDifference(got, want string) string {
	g, w := strings.Split(strings.TrimSuffix(got, "\n"), "\n"), strings.Split(strings.TrimSuffix(want, "\n"), "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("its line %d is %q, the file has %q", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("it has %d lines, the file has %d", len(g), len(w))
}
