package cli

import (
	"bytes"
	"testing"

	"github.com/fatih/color"
)

// Columns stand where they stand without colours, also after letters and pictures that take two
// columns or none, and nothing trails a line.
func TestTableWidths(t *testing.T) {
	print := func(coloured bool) string {
		before := color.NoColor
		color.NoColor = !coloured
		defer func() { color.NoColor = before }()
		var out bytes.Buffer
		table := NewTable(&out, "NODE", "STATE")
		table.Row("a", "no")
		table.Paint(1, Bad)
		table.Row("\u6771\u4eac", "yes")
		table.Paint(1, Good)
		table.Row("cafe\u0301", "-")
		table.Row("\u2705", "-")
		table.End()
		return out.String()
	}
	const plain = "NODE   STATE\na      no\n\u6771\u4eac   yes\ncafe\u0301   -\n\u2705     -\n"
	if got := print(false); got != plain {
		t.Errorf("got\n%s\nwant\n%s", got, plain)
	}
	const coloured = "\x1b[1mNODE\x1b[22m   \x1b[1mSTATE\x1b[22m\na      \x1b[31mno\x1b[0m\n\u6771\u4eac   \x1b[32myes\x1b[0m\ncafe\u0301   -\n\u2705     -\n"
	if got := print(true); got != coloured {
		t.Errorf("got\n%q\nwant\n%q", got, coloured)
	}
}

// A name that a peer chose forges no line, moves no cursor and colours nothing.
func TestNamesInCellsPrint(t *testing.T) {
	var out bytes.Buffer
	table := NewTable(&out)
	for _, name := range []string{"ev\nil\x1b[31m", Bad("x"), "\x1b[31mred\x1b[0m", "a\tb\r\x9b2J\u202e", `C:\"d"`} {
		table.Row(name, "-")
	}
	table.End()
	const want = `ev\nil\x1b[31m       -
x                    -
\x1b[31mred\x1b[0m   -
a\tb\r\x9b2J\u202e   -
C:\"d"               -
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// A table without a head has rows only, of as many columns as they have.
func TestTableWithoutHead(t *testing.T) {
	var out bytes.Buffer
	table := NewTable(&out)
	table.Row("ok", "nodes", "2 of 2 answer")
	table.Row("warn", "memory")
	table.End()
	NewTable(&out).End()
	if want := "ok     nodes    2 of 2 answer\nwarn   memory\n"; out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
