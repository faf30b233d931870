package ctl

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
)

// print prints a result: as JSON if that is asked for, else as people prints
// it.
func (g *globals) print(cmd *cobra.Command, result any, people func(io.Writer)) error {
	if g.json {
		return writeJSON(cmd.OutOrStdout(), result)
	}
	people(cmd.OutOrStdout())
	return nil
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// A table prints rows in columns.
type table struct{ w *tabwriter.Writer }

// newTable prints the head of a table. Each cell ends its column, so that the
// last one has no trailing spaces.
func newTable(w io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)}
	if len(head) > 0 {
		t.row(head...)
	}
	return t
}

func (t table) row(cells ...string) { fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

func (t table) end() { _ = t.w.Flush() }

// sizeText writes a size for people, in binary units.
func sizeText(n uint64) string { return humanize.IBytes(n) }

// count writes a number for people.
func count[N int | int64 | uint64](n N) string { return humanize.Comma(int64(n)) }

// or returns text, or a dash for none.
func or(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// A sizeFlag is a number of bytes above 0, with or without a unit.
type sizeFlag struct{ bytes *uint64 }

func (f sizeFlag) Type() string { return "size" }

func (f sizeFlag) String() string {
	if *f.bytes == 0 {
		return ""
	}
	return strings.ReplaceAll(sizeText(*f.bytes), " ", "")
}

func (f sizeFlag) Set(s string) error {
	n, err := humanize.ParseBytes(s)
	if err != nil || n == 0 {
		return fmt.Errorf("must be bytes as a number or a size such as 64KiB or 1MiB, above 0")
	}
	*f.bytes = n
	return nil
}
