package docs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// CheckLinks returns the problems of the relative links of a page, one sentence each: missing files, and missing
// headings of other pages. Links to other sites are not checked. Name is the page's path below root.
func CheckLinks(root, name string, page Page) []string {
	var problems []string
	for i, line := range page.prose {
		for _, target := range targets(line) {
			if err := checkLink(root, name, target); err != nil {
				problems = append(problems, fmt.Sprintf("line %d: the link to %s: %v", i+1, target, err))
			}
		}
	}
	return problems
}

// targets returns where the links and images in a line lead: [text](target), [name]: target, <a href="target">.
func targets(line string) []string {
	line = withoutCodeSpans(line)
	found := regexp.MustCompile(
		`\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)|^\s{0,3}\[[^\]]+\]:\s+<?([^\s>]+)|(?:href|src)="([^"]+)"`).
		FindAllStringSubmatch(line, -1)
	var out []string
	for _, groups := range found {
		out = append(out, groups[1]+groups[2]+groups[3]) // only one of them matched
	}
	return out
}

func withoutCodeSpans(line string) string {
	return regexp.MustCompile("`+[^`]*`+").ReplaceAllString(line, "")
}

func checkLink(root, name, target string) error {
	if regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*:|^//`).MatchString(target) {
		return nil // another site, or mail
	}
	file, anchor, _ := strings.Cut(target, "#")
	if strings.HasPrefix(file, "/") {
		return fmt.Errorf("it starts with a slash, which means something else on each site: write it "+
			"relative to %s", name)
	}
	resolved := name
	if file != "" {
		resolved = path.Join(path.Dir(name), file)
	}
	if resolved == ".." || strings.HasPrefix(resolved, "../") {
		return fmt.Errorf("it is outside of the repository")
	}
	full := filepath.Join(root, filepath.FromSlash(resolved))
	if _, err := os.Stat(full); err != nil {
		return fmt.Errorf("%s does not exist: correct the path, or remove the link", resolved)
	}
	if anchor == "" || path.Ext(resolved) != ".md" {
		return nil
	}
	text, err := os.ReadFile(full)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	other, err := Parse(string(text))
	if err != nil {
		return fmt.Errorf("reading %s: %w", resolved, err)
	}
	if !anchors(other)[anchor] {
		return fmt.Errorf("%s has no heading for #%s", resolved, anchor)
	}
	return nil
}

// anchors returns the names that a page's headings get on GitHub: lower case, punctuation removed, spaces to hyphens,
// and a number behind those that come again.
func anchors(page Page) map[string]bool {
	found := map[string]bool{}
	count := map[string]int{}
	explicit := regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	heading := regexp.MustCompile(`^ {0,3}#{1,6}\s+(.*?)(?:\s+#+)?\s*$`)
	link := regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	for _, line := range page.prose {
		for _, m := range explicit.FindAllStringSubmatch(line, -1) {
			found[m[1]] = true
		}
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := slug(link.ReplaceAllString(m[1], "$1"))
		if n := count[name]; n > 0 {
			found[fmt.Sprintf("%s-%d", name, n)] = true
		} else {
			found[name] = true
		}
		count[name]++
	}
	return found
}

func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, heading)
}
