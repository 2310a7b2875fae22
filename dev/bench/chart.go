package main

import (
	"fmt"
	"math"
	"strings"
)

// chart is a picture of lines over logarithmic axes.
type chart struct {
	title, xTitle string
	y             unit
	lines         []line
}

type line struct {
	name   string
	dashed bool    // another variant of the line before
	points []point // by x
}

type point struct{ x, y float64 }

// The picture's measures.
const (
	chartWidth, chartHeight     = 780, 420
	plotLeft, plotRight         = 80, 500
	plotTop, plotBottom         = 50, 360
	legendLeft, legendLineSpace = 520, 22
)

// svg draws the chart. Its colours follow the reader's dark or light mode.
func (c chart) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="sans-serif" `+
			`font-size="12">`+"\n", chartWidth, chartHeight)
	fmt.Fprintf(&b, "<title>%s</title>\n", c.title)
	b.WriteString(`<style>
.back { fill: #ffffff } .text { fill: #1f2328 } .grid { stroke: #d1d9e0; stroke-width: 1 }
.line { fill: none; stroke-width: 2.5 } .best { stroke-dasharray: 6 4 }
.c0 { stroke: #0969da } .c1, .c2 { stroke: #bc4c00 } .c3, .c4 { stroke: #1a7f37 } .c5, .c6 { stroke: #8250df }
.d0 { fill: #0969da } .d1, .d2 { fill: #bc4c00 } .d3, .d4 { fill: #1a7f37 } .d5, .d6 { fill: #8250df }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117 } .text { fill: #f0f6fc } .grid { stroke: #3d444d }
.c0 { stroke: #4493f8 } .c1, .c2 { stroke: #f0883e } .c3, .c4 { stroke: #3fb950 } .c5, .c6 { stroke: #ab7df8 }
.d0 { fill: #4493f8 } .d1, .d2 { fill: #f0883e } .d3, .d4 { fill: #3fb950 } .d5, .d6 { fill: #ab7df8 }
}
</style>
`)
	fmt.Fprintf(&b, `<rect class="back" width="%d" height="%d" rx="6"/>`+"\n", chartWidth, chartHeight)
	fmt.Fprintf(&b, `<text class="text" x="%d" y="28" font-size="15" font-weight="bold">%s</text>`+"\n", plotLeft,
		c.title)
	low, high := c.decades()
	at := func(p point) (x, y float64) {
		return scale(p.x, low.x, high.x, plotLeft, plotRight), scale(p.y, low.y, high.y, plotBottom, plotTop)
	}
	for x := low.x; x <= high.x*1.01; x *= 10 {
		px, _ := at(point{x, low.y})
		fmt.Fprintf(&b,
			`<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/><text class="text" x="%.1f" y="%d" `+
				`text-anchor="middle">%s</text>`+"\n",
			px, plotTop, px, plotBottom, px, plotBottom+20, thousands(int(x+0.5)))
	}
	for y := low.y; y <= high.y*1.01; y *= 10 {
		_, py := at(point{low.x, y})
		fmt.Fprintf(&b,
			`<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/><text class="text" x="%d" y="%.1f" `+
				`text-anchor="end">%s</text>`+"\n",
			plotLeft, py, plotRight, py, plotLeft-8, py+4, c.tick(y))
	}
	fmt.Fprintf(&b, `<text class="text" x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (plotLeft+plotRight)/2,
		plotBottom+44, c.xTitle)
	for i, l := range c.lines {
		class := fmt.Sprintf("line c%d", i)
		if l.dashed {
			class += " best"
		}
		var path []string
		for _, p := range l.points {
			x, y := at(p)
			path = append(path, fmt.Sprintf("%.1f,%.1f", x, y))
			fmt.Fprintf(&b, `<circle class="d%d" cx="%.1f" cy="%.1f" r="3.5"><title>%s, %s: %s</title></circle>`+"\n",
				i, x, y, l.name, thousands(int(p.x)), c.y.format(p.y))
		}
		fmt.Fprintf(&b, `<polyline class="%s" points="%s"/>`+"\n", class, strings.Join(path, " "))
		y := plotTop + 10 + i*legendLineSpace
		fmt.Fprintf(&b,
			`<line class="%s" x1="%d" y1="%d" x2="%d" y2="%d"/><text class="text" x="%d" y="%d">%s</text>`+"\n",
			class, legendLeft, y, legendLeft+26, y, legendLeft+32, y+4, l.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// tick writes a power of ten of the axis.
func (c chart) tick(y float64) string {
	text := c.y.format(y)
	number, unit, _ := strings.Cut(text, " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return strings.TrimSpace(number + " " + unit)
}

// decades returns the powers of ten around all points.
func (c chart) decades() (low, high point) {
	low, high = point{math.Inf(1), math.Inf(1)}, point{}
	for _, l := range c.lines {
		for _, p := range l.points {
			low = point{min(low.x, p.x), min(low.y, p.y)}
			high = point{max(high.x, p.x), max(high.y, p.y)}
		}
	}
	down := func(v float64) float64 { return math.Pow(10, math.Floor(math.Log10(v)+1e-9)) }
	up := func(v float64) float64 { return math.Pow(10, math.Ceil(math.Log10(v)-1e-9)) }
	low, high = point{down(low.x), down(low.y)}, point{up(high.x), up(high.y)}
	// A single point still needs axes of some length.
	return low, point{max(high.x, low.x*10), max(high.y, low.y*10)}
}

func scale(v, low, high, from, to float64) float64 {
	return from + (math.Log10(v)-math.Log10(low))/(math.Log10(high)-math.Log10(low))*(to-from)
}
