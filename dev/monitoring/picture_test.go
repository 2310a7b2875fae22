package monitoring_test

import (
	"crypto/sha256"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
)

const pictureFile = "../../docs/dashboards/evenkeel.svg"

// pictureStep is the time between two points. Grafana sets $__rate_interval to this and the scrape interval.
const pictureStep = 2 * time.Minute

// The picture must be drawn from the present dashboard. Flag -update draws it.
func TestPicture(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	drawn := drawDashboard(t, d)
	if *update {
		if err := os.WriteFile(pictureFile, []byte(drawn), 0o644); err != nil { //nolint:gosec // it is a page of the docs
			t.Fatal(err)
		}
	}
	for name, picture := range map[string]string{"new picture": drawn, pictureFile: readFile(t, pictureFile)} {
		if !strings.Contains(picture, fingerprint(t, d)) {
			t.Errorf("%s was drawn from another dashboard: run go test -C dev/monitoring -run Picture -update", name)
		}
		if !strings.Contains(picture, "not a screenshot") {
			t.Errorf("%s does not say that it is drawn", name)
		}
		checkPicture(t, name, picture, d)
	}
}

// checkPicture checks that a picture is well-formed, and that each panel has its title and a line or a value.
func checkPicture(t *testing.T, name, picture string, d dashboard) {
	t.Helper()
	for decoder := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, p := range d.Panels {
		_, group, found := strings.Cut(picture, fmt.Sprintf(`<g id="panel-%d">`, p.ID))
		group, _, _ = strings.Cut(group, "</g>")
		if !found || !strings.Contains(group, ">"+html.EscapeString(p.Title)+"</text>") {
			t.Errorf("%s: panel %q is missing", name, p.Title)
		}
		if p.Type != "row" && !strings.Contains(group, "<path") && !strings.Contains(group, `class="value"`) {
			t.Errorf("%s: panel %q is empty", name, p.Title)
		}
	}
}

// fingerprint identifies what the picture shows of a dashboard.
func fingerprint(t *testing.T, d dashboard) string {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// Sizes in pixels.
const (
	columnWidth = 42
	unitHeight  = 24
	rowHeight   = 26
	headHeight  = 92
)

// A drawing is a picture in SVG.
type drawing struct {
	strings.Builder
	from, to time.Time
	marks    []mark
}

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

func (d *drawing) text(x, y float64, class, text string) {
	d.add(`<text x="%.0f" y="%.0f" class="%s">%s</text>`, x, y, class, html.EscapeString(text))
}

// drawDashboard draws all panels, with the results of their queries in the run trouble.
func drawDashboard(t *testing.T, board dashboard) string {
	t.Helper()
	w := play(t, trouble)
	samples := store(t, w.scrapes)
	d := &drawing{from: samples.from, to: samples.to, marks: w.marks}
	d.head(t, board)
	top, rows := headHeight, 0
	bottom := 0
	for _, p := range board.Panels {
		x, y := p.GridPos.X*columnWidth, top+(p.GridPos.Y-rows)*unitHeight+rows*rowHeight
		d.add(`<g id="panel-%d">`, p.ID)
		if p.Type == "row" {
			d.text(float64(x+8), float64(y+18), "row", p.Title)
			d.add("</g>")
			rows++
			continue
		}
		bottom = max(bottom, y+p.GridPos.H*unitHeight)
		var all []line
		for _, q := range p.Targets {
			text := strings.ReplaceAll(q.Expr, "$__rate_interval", (pictureStep + scrapeInterval).String())
			result, err := samples.query(t.Context(), interpolate(text), pictureStep)
			if err != nil {
				t.Fatalf("panel %q: %v", p.Title, err)
			}
			for _, series := range result {
				points := slices.DeleteFunc(series.Floats, func(p promql.FPoint) bool { return math.IsNaN(p.F) || math.IsInf(p.F, 0) })
				all = append(all, line{legend(q.LegendFormat, series), points})
			}
		}
		d.panel(p, all, float64(x), float64(y))
		d.add("</g>")
	}
	d.add("</svg>")
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d">`+"\n",
		24*columnWidth, bottom+8, 24*columnWidth, bottom+8) + d.String()
}

func (d *drawing) head(t *testing.T, board dashboard) {
	t.Helper()
	d.add(`<desc>%s</desc>`, fingerprint(t, board))
	d.add(`<style>text{font-family:sans-serif;font-size:10px;fill:#57606a}.head{font-size:18px;font-weight:bold;fill:#24292f}` +
		`.note{font-size:12px}.row{font-size:14px;font-weight:bold;fill:#24292f}.title{font-size:12px;font-weight:bold;fill:#24292f}` +
		`.left{text-anchor:end}.time{text-anchor:middle}.value{font-size:16px;fill:#24292f}path{fill:none;stroke-width:1.3}</style>`)
	d.add(`<rect width="100%%" height="100%%" fill="#f6f8fa"/>`)
	d.text(8, 24, "head", board.Title)
	d.text(8, 42, "note", "Drawn by dev/monitoring/picture_test.go from a test run with two replicas, not a screenshot of Grafana. Time is virtual in the test:")
	d.text(8, 57, "note", "computing takes none of it. CPU time, memory and goroutines are those of the test. Vertical lines are the beginning and the end of:")
	var texts []string
	for i, m := range d.marks {
		switch {
		case m.text == "":
		case i+1 < len(d.marks) && d.marks[i+1].text == "":
			texts = append(texts, fmt.Sprintf("%s to %s: %s", m.at.Format("15:04"), d.marks[i+1].at.Format("15:04"), m.text))
		default:
			texts = append(texts, fmt.Sprintf("%s: %s", m.at.Format("15:04"), m.text))
		}
	}
	half := (len(texts) + 1) / 2
	d.text(8, 72, "note", strings.Join(texts[:half], " · "))
	d.text(8, 87, "note", strings.Join(texts[half:], " · "))
}

type line struct {
	name   string
	points []promql.FPoint
}

// legend is the name of a series, by the format of Grafana.
func legend(format string, series promql.Series) string {
	return regexp.MustCompile(`\{\{(\w+)\}\}`).ReplaceAllStringFunc(format, func(field string) string {
		return series.Metric.Get(strings.Trim(field, "{}"))
	})
}

// panel draws the frame, the axes, the lines and the legend of a panel.
func (d *drawing) panel(p panel, all []line, x, y float64) {
	width, height := float64(p.GridPos.W*columnWidth), float64(p.GridPos.H*unitHeight)
	d.add(`<rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="3" fill="#fff" stroke="#d0d7de"/>`, x+3, y+3, width-6, height-6)
	d.text(x+12, y+20, "title", p.Title)
	if p.Type == "stat" {
		for i, l := range all {
			d.text(x+12, y+50+float64(40*i), "", l.name)
			d.text(x+12, y+70+float64(40*i), "value", format(p.FieldConfig.Defaults.Unit, l.points[len(l.points)-1].F))
		}
		return
	}
	left, right, top, bottom := x+56, x+width-14, y+32, y+height-54
	highest := 0.0
	for _, l := range all {
		for _, point := range l.points {
			highest = max(highest, point.F)
		}
	}
	step := tick(p.FieldConfig.Defaults.Unit, highest)
	upper := step * max(1, math.Ceil(highest/step-1e-9))
	vertical := func(value float64) float64 { return bottom - value/upper*(bottom-top) }
	horizontal := func(at time.Time) float64 {
		return left + at.Sub(d.from).Seconds()/d.to.Sub(d.from).Seconds()*(right-left)
	}
	for value := 0.0; value <= upper+step/2; value += step {
		d.add(`<path d="M%.0f %.1fH%.0f" stroke="#eaeef2"/>`, left, vertical(value), right)
		d.text(left-5, vertical(value)+3, "left", format(p.FieldConfig.Defaults.Unit, value))
	}
	for at := d.from.Truncate(30 * time.Minute); !at.After(d.to); at = at.Add(30 * time.Minute) {
		if !at.Before(d.from) {
			d.text(horizontal(at), bottom+13, "time", at.Format("15:04"))
		}
	}
	for _, m := range d.marks {
		d.add(`<path d="M%.1f %.0fV%.0f" stroke="#d0d7de" stroke-dasharray="2 2"/>`, horizontal(m.at), top, bottom)
	}
	colors := []string{"#1f77b4", "#e8590c", "#2f9e44", "#c92a2a", "#7048e8", "#a87900", "#0c8599", "#d6336c", "#495057", "#74b816"}
	for i, l := range all {
		var path strings.Builder
		for j, point := range l.points {
			command := "L"
			if j == 0 || point.T-l.points[j-1].T > pictureStep.Milliseconds() {
				command = "M" // a gap
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", command, horizontal(time.UnixMilli(point.T)), vertical(max(0, point.F)))
			if command == "M" && (j+1 == len(l.points) || l.points[j+1].T-point.T > pictureStep.Milliseconds()) {
				path.WriteString("h2.5") // a single point
			}
		}
		d.add(`<path d="%s" stroke="%s"/>`, path.String(), colors[i%len(colors)])
	}
	d.legend(all, colors, x+12, bottom+28, right)
}

// legend draws the names of the lines, in at most two rows.
func (d *drawing) legend(all []line, colors []string, left, y, right float64) {
	const lineHeight, more = 14.0, 50.0
	x, row := left, 0
	for i, l := range all {
		width := 24 + 5.9*float64(len(l.name))
		limit := right
		if row == 1 && i < len(all)-1 {
			limit -= more
		}
		if x > left && x+width > limit {
			if row == 1 {
				d.text(x, y, "", fmt.Sprintf("and %d more", len(all)-i))
				return
			}
			x, y, row = left, y+lineHeight, row+1
		}
		d.add(`<rect x="%.0f" y="%.0f" width="9" height="3" fill="%s"/>`, x, y-5, colors[i%len(colors)])
		d.text(x+12, y, "", l.name)
		x += width
	}
}

// tick is the distance of two labels on the axis: about four are below the highest value.
func tick(unit string, highest float64) float64 {
	if highest == 0 {
		return 1
	}
	scale := 1.0
	switch unit {
	case "bytes", "Bps":
		for highest/scale >= 1024 {
			scale *= 1024
		}
	case "s":
		if highest >= 60 {
			scale = 60
		}
	}
	rough := highest / scale / 4
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, factor := range []float64{1, 2, 5} {
		if rough <= factor*power {
			return factor * power * scale
		}
	}
	return 10 * power * scale
}

// format is a value with its unit, as Grafana formats it.
func format(unit string, value float64) string {
	scaled := func(names []string, factor float64) string {
		i := 0
		for ; value >= factor && i < len(names)-1; i++ {
			value /= factor
		}
		return fmt.Sprintf("%.3g%s", value, names[i])
	}
	switch {
	case unit == "percentunit":
		return fmt.Sprintf("%.3g%%", 100*value)
	case unit == "bytes":
		return scaled([]string{" B", " KiB", " MiB", " GiB"}, 1024)
	case unit == "Bps":
		return scaled([]string{" B/s", " KiB/s", " MiB/s"}, 1024)
	case unit == "ops":
		return fmt.Sprintf("%.3g/s", value)
	case unit == "s" && value >= 60:
		return fmt.Sprintf("%.3g min", value/60)
	case unit == "s" && value > 0 && value < 1:
		return fmt.Sprintf("%.3g ms", 1000*value)
	case unit == "s":
		return fmt.Sprintf("%.3g s", value)
	}
	return scaled([]string{"", "k", "M"}, 1000)
}
