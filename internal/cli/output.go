package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/rodaine/table"

	"github.com/understudy-store/understudy/internal/security/escape"
)

// A Table prints rows in columns, as wide as a terminal shows them. Cells are Printable,
// whoever chose the names in them; only Paint colours them.
type Table struct {
	w    io.Writer
	head []any
	rows [][]string
	wide int // columns of the widest row
}

// NewTable begins a table; without a head it has rows only.
func NewTable(w io.Writer, head ...string) *Table {
	t := &Table{w: w, wide: len(head)}
	for _, h := range head {
		t.head = append(t.head, Bold(h))
	}
	return t
}

// Row adds a row.
func (t *Table) Row(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = Printable(cell)
	}
	t.rows, t.wide = append(t.rows, row), max(t.wide, len(row))
}

// Paint colours a cell of the row that was added last, such as with Good. Colours in the text
// of a cell could be those of a peer that chose a name.
func (t *Table) Paint(column int, colour func(string) string) {
	row := t.rows[len(t.rows)-1]
	row[column] = colour(row[column])
}

// End prints the table.
func (t *Table) End() {
	const gap = 3
	if t.wide == 0 {
		return
	}
	var text strings.Builder
	for len(t.head) < t.wide {
		t.head = append(t.head, "")
	}
	table.New(t.head...).WithWriter(&text).WithPadding(gap).WithWidthFunc(shownWidth).WithPrintHeaders(t.head[0] != "").SetRows(t.rows).Print()
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(t.w, strings.TrimRight(line, " \n")) // the last column is padded, too
	}
}

// Days returns a duration for people: in days, if it is a whole number of them.
func Days(d time.Duration) string {
	const day = 24 * time.Hour
	if d < day || d%day != 0 {
		return d.String()
	}
	return Things(int(d/day), "day")
}

// Things writes a number of things for people.
func Things(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// SizeText writes a size for people, in binary units.
func SizeText(n uint64) string { return humanize.IBytes(n) }

// Count writes a number for people.
func Count[N int | int64 | uint64](n N) string { return humanize.Comma(int64(n)) }

// Millis returns a number of milliseconds as a duration.
func Millis[N int64 | uint64](ms N) time.Duration { return time.Duration(ms) * time.Millisecond }

// Key returns a key for people: quoted if it is empty or has characters that do not print,
// such as a newline (see escape.Name).
func Key(key string) string {
	if key == "" {
		return `""`
	}
	return escape.Name(key)
}

// Printable returns a text that others may have chosen, such as the name of a segment, for
// people. In one with characters that do not print it writes these as Go does, \n or \x1b, and
// each backslash twice: they could forge lines, or take over the terminal.
func Printable(text string) string {
	if escape.Prints(text) {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// PrintableLines is Printable for each line of a text that has several of its own.
func PrintableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Printable(line)
	}
	return strings.Join(lines, "\n")
}

// Or returns text, or a dash for none.
func Or(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
