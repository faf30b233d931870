package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"
)

// A Table prints rows in columns.
type Table struct{ w *tabwriter.Writer }

// NewTable prints the head of a table.
func NewTable(w io.Writer, head ...string) Table {
	t := Table{tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)}
	if len(head) > 0 {
		t.Row(head...)
	}
	return t
}

// Row prints a row. Each cell ends its column, so that the last one has no
// trailing spaces.
func (t Table) Row(cells ...string) { fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

// End prints what the table has kept to align its columns.
func (t Table) End() { _ = t.w.Flush() }

// Days is a duration for people: in days, if it is some.
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

// Key writes a key for people: quoted if it could be taken for something else on a
// terminal, such as a second line.
func Key(key string) string {
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(key)
	}
	return key
}

// Or returns text, or a dash for none.
func Or(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
