package docs

import (
	"fmt"
	"slices"
	"strings"
)

// A Page is a parsed Markdown file.
type Page struct {
	Blocks []Block
	// prose has the page's lines with all code blocks and comments blanked, so that line numbers stay right.
	prose []string
}

// A Block is a fenced code block.
type Block struct {
	Line    int      // of the opening fence, from 1
	Lang    string   // the first word behind the fence
	Text    string   // what is between the fences, without the fence's own indentation
	Markers []Marker // the comments directly above, in order

	indent string
	// from and to are the bounds of the content in the page's lines: from is its first line's index, to the closing
	// fence's.
	from, to int
}

// A Marker is a comment <!-- key: value --> that describes the block below it.
type Marker struct {
	Line       int
	Key, Value string
}

// Marked returns the values of the block's markers with that key.
func (b Block) Marked(key string) []string {
	var values []string
	for _, m := range b.Markers {
		if m.Key == key {
			values = append(values, m.Value)
		}
	}
	return values
}

// Parse reads the fenced blocks of a page. A block that is not closed is an error, and so is a marker without a block
// directly below it, which would be ignored.
func Parse(text string) (Page, error) {
	p := parser{lines: strings.Split(text, "\n")}
	for p.at < len(p.lines) {
		if err := p.step(); err != nil {
			return Page{}, err
		}
	}
	if err := p.unused(); err != nil {
		return Page{}, err
	}
	return p.page, nil
}

type parser struct {
	lines   []string
	at      int
	markers []Marker
	page    Page
}

// step reads one block, one comment or one line of prose.
func (p *parser) step() error {
	line := p.lines[p.at]
	trimmed := strings.TrimSpace(line)
	if fence := fenceOf(trimmed); fence != "" {
		return p.block(fence)
	}
	if m, ok := markerOf(trimmed); ok {
		m.Line = p.at + 1
		p.markers = append(p.markers, m)
		p.blank(1)
		return nil
	}
	if err := p.unused(); err != nil {
		return err
	}
	if strings.HasPrefix(trimmed, "<!--") {
		p.comment()
		return nil
	}
	p.page.prose = append(p.page.prose, line)
	p.at++
	return nil
}

func (p *parser) block(fence string) error {
	open := p.lines[p.at]
	indent := open[:strings.Index(open, fence)]
	info := strings.Fields(open[len(indent)+len(fence):])
	b := Block{Line: p.at + 1, Markers: p.markers, indent: indent, from: p.at + 1}
	if len(info) > 0 {
		b.Lang = info[0]
	}
	for b.to = b.from; ; b.to++ {
		if b.to == len(p.lines) {
			return fmt.Errorf("line %d: the block is not closed: add a line %q below it", b.Line, indent+fence)
		}
		closing := strings.TrimSpace(p.lines[b.to])
		if strings.HasPrefix(closing, fence) && strings.Trim(closing, fence[:1]) == "" {
			break
		}
	}
	var content strings.Builder
	for _, line := range p.lines[b.from:b.to] {
		content.WriteString(strings.TrimPrefix(line, indent) + "\n")
	}
	b.Text = content.String()
	p.markers = nil
	p.page.Blocks = append(p.page.Blocks, b)
	p.blank(b.to + 1 - p.at)
	return nil
}

// comment skips a comment of one or more lines that is not a marker.
func (p *parser) comment() {
	n := 1
	for !strings.Contains(p.lines[p.at+n-1], "-->") && p.at+n < len(p.lines) {
		n++
	}
	p.blank(n)
}

func (p *parser) blank(n int) {
	p.page.prose = append(p.page.prose, make([]string, n)...)
	p.at += n
}

func (p *parser) unused() error {
	if len(p.markers) == 0 {
		return nil
	}
	m := p.markers[len(p.markers)-1]
	return fmt.Errorf("line %d: the marker %q is not directly above a code block: move it there, with no line between",
		m.Line, m.Key)
}

// fenceOf returns the fence that a line opens: three or more backticks or tildes.
func fenceOf(line string) string {
	for _, mark := range []string{"`", "~"} {
		rest := strings.TrimLeft(line, mark)
		if n := len(line) - len(rest); n >= 3 && !strings.Contains(rest, mark) {
			return line[:n]
		}
	}
	return ""
}

func markerOf(line string) (Marker, bool) {
	inner, ok := strings.CutPrefix(line, "<!--")
	if !ok {
		return Marker{}, false
	}
	inner, ok = strings.CutSuffix(inner, "-->")
	if !ok {
		return Marker{}, false
	}
	key, value, ok := strings.Cut(strings.TrimSpace(inner), ":")
	if !ok || !slices.Contains([]string{"code", "loc", "uses", "path", "file", "run"}, key) {
		return Marker{}, false
	}
	return Marker{Key: key, Value: strings.TrimSpace(value)}, true
}
