package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/errs"
)

// What prints stays as it is; what does not is written as Go does.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "host-1:12345": "host-1:12345", `C:\"d" é 東`: `C:\"d" é 東`, "a\n": `a\n`, "\"\x1b\\": `"\x1b\\`, "\xff": `\xff`, "\u2028": `\u2028`,
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	if got := Key("\xff"); got != `"\xff"` {
		t.Errorf("got %s, want a key that is no UTF-8 quoted", got)
	}
}

// An error has lines of its own, and quotes what peers sent.
func TestErrorsPrint(t *testing.T) {
	root := &cobra.Command{Use: "it", RunE: func(*cobra.Command, []string) error {
		return errs.New(errs.ObjectNotFound, "Get", "of \x1b[2J")
	}}
	Program(root, new(Flags))
	var said bytes.Buffer
	root.SetArgs([]string{})
	root.SetErr(&said)
	if Execute(t.Context(), root); !strings.Contains(said.String(), `of \x1b[2J`+"\nwhat to do: ") {
		t.Errorf("got %q, want the escape written out, and advice on a line of its own", said.String())
	}
}

func TestDaysAndCounts(t *testing.T) {
	for d, want := range map[time.Duration]string{
		365 * 24 * time.Hour: "365 days", 24 * time.Hour: "1 day", 36 * time.Hour: "36h0m0s", time.Minute: "1m0s", 0: "0s",
	} {
		if got := Days(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
	if got := Things(1, "client") + ", " + Things(0, "client"); got != "1 client, 0 clients" {
		t.Errorf("got %q, want a plural for all but one", got)
	}
}
