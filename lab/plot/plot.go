// Package plot draws line charts as one SVG file, for reports of measurements. It
// draws what it gets: it must never round, smooth or leave out a value.
package plot

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
)

// A Chart has lines over values of x, which are drawn at equal distances.
type Chart struct {
	Title  string
	X, Y   string   // names of the axes, with units
	Values []string // of x
	Log    bool     // y is logarithmic, and must be above 0
	Lines  []Line
}

// A Line has a y for each value of x; NaN leaves one out.
type Line struct {
	Name string
	Y    []float64
}

// Sizes in pixels.
const (
	width, height             = 420, 260 // of a chart's plane
	left, above, below, right = 70, 40, 50, 230
	legendLine                = 16
	columns                   = 2
)

var colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999"} // told apart by all eyes

// Write writes the charts, two in a row.
func Write(w io.Writer, charts []Chart) error {
	rowHeight := above + height + below
	for _, c := range charts {
		rowHeight = max(rowHeight, above+below+legendLine*len(c.Lines))
	}
	rows := (len(charts) + columns - 1) / columns
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"11\">\n"+
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", columns*(left+width+right), rows*rowHeight)
	for i := range charts {
		fmt.Fprintf(b, "<g transform=\"translate(%d,%d)\">\n", i%columns*(left+width+right)+left, i/columns*rowHeight+above)
		charts[i].write(b)
		fmt.Fprint(b, "</g>\n")
	}
	fmt.Fprint(b, "</svg>\n")
	return b.Flush()
}

func (c *Chart) write(w io.Writer) {
	s := c.scale()
	fmt.Fprintf(w, "<rect width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888\"/>\n", width, height)
	text(w, 0, -15, "start", c.Title)
	text(w, width/2, height+35, "middle", c.X)
	text(w, 0, -3, "end", c.Y)
	for _, y := range s.ticks() {
		at := s.y(y)
		fmt.Fprintf(w, "<path d=\"M0 %.1fH%d\" stroke=\"#ddd\"/>\n", at, width)
		text(w, -5, at+4, "end", fmt.Sprintf("%.4g", y))
	}
	for i, x := range c.Values {
		text(w, s.x(i), height+15, "middle", x)
	}
	for i := range c.Lines {
		c.Lines[i].write(w, s, i)
	}
}

func (l *Line) write(w io.Writer, s scale, number int) {
	color, dash := colors[number%len(colors)], number/len(colors)*3
	path, next := "", "M"
	for i, y := range l.Y {
		if math.IsNaN(y) {
			next = "M"
			continue
		}
		path += fmt.Sprintf("%s%.1f %.1f", next, s.x(i), s.y(y))
		next = "L"
		fmt.Fprintf(w, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"><title>%s: %g</title></circle>\n", s.x(i), s.y(y), color, html.EscapeString(l.Name), y)
	}
	at := float64(number*legendLine) + 8
	path += fmt.Sprintf("M%d %.1fh18", width+10, at)
	fmt.Fprintf(w, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" stroke-dasharray=\"%d\"/>\n", path, color, dash)
	text(w, width+33, at+4, "start", l.Name)
}

func text(w io.Writer, x, y float64, anchor, s string) {
	fmt.Fprintf(w, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, html.EscapeString(s))
}

// A scale places values in a chart's plane.
type scale struct {
	values    int
	log       bool
	low, high float64
}

// scale returns a scale from 0, or if y is logarithmic, from the power of ten below the least
// value.
func (c *Chart) scale() scale {
	s := scale{values: len(c.Values), log: c.Log, low: math.Inf(1)}
	for _, l := range c.Lines {
		for _, y := range l.Y {
			if !math.IsNaN(y) {
				s.low, s.high = min(s.low, y), max(s.high, y)
			}
		}
	}
	switch {
	case s.high == 0:
		s.log, s.low, s.high = false, 0, 1
	case s.log:
		s.low = math.Pow(10, math.Floor(math.Log10(s.low)))
		s.high = math.Pow(10, math.Max(math.Ceil(math.Log10(s.high)), math.Log10(s.low)+1))
	default:
		step := s.step()
		s.low, s.high = 0, step*math.Ceil(s.high/step)
	}
	return s
}

// step returns the distance between ticks: 1, 2 or 5 times a power of ten.
func (s scale) step() float64 {
	ten := math.Pow(10, math.Floor(math.Log10(s.high/4)))
	for _, f := range []float64{1, 2, 5} {
		if s.high/(f*ten) <= 6 {
			return f * ten
		}
	}
	return 10 * ten
}

func (s scale) ticks() (list []float64) {
	if s.log {
		for y := s.low; y <= s.high*1.001; y *= 10 {
			list = append(list, y)
		}
		return list
	}
	step := s.step()
	for i := 0; float64(i)*step <= s.high*1.001; i++ {
		list = append(list, float64(i)*step)
	}
	return list
}

func (s scale) x(i int) float64 { return width * (float64(i) + 0.5) / float64(s.values) }

func (s scale) y(y float64) float64 {
	part := (y - s.low) / (s.high - s.low)
	if s.log {
		part = math.Log(y/s.low) / math.Log(s.high/s.low)
	}
	return height * (1 - part)
}
