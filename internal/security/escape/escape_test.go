package escape

import (
	"testing"
)

// What prints stays as it is, and nothing else looks like something that does.
func TestName(t *testing.T) {
	for name, want := range map[string]string{
		"": "", "model@/layer 1/0a1b": "model@/layer 1/0a1b", `C:\n`: `C:\n`, "é 東": "é 東", `a"b"`: `a"b"`,
		"a\nb": `"a\nb"`, "\x1b[2J": `"\x1b[2J"`, "\x7f": `"\x7f"`, "\u009b": `"\u009b"`, "\u202e": `"\u202e"`, "\xff": `"\xff"`, "\t": `"\t"`,
		`"a\n"`: `"\"a\\n\""`, "\ufffd": "\ufffd",
	} {
		if got := Name(name); got != want {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
}

// No two names are written alike, and each stays on its line.
func TestNamesDiffer(t *testing.T) {
	names, seen := []string{""}, make(map[string]string)
	for at := 0; at < len(names); at++ {
		name := names[at]
		written := Name(name)
		if other, ok := seen[written]; ok || !Prints(written) {
			t.Fatalf("%q is written as %s, and so is %q; want something else that prints", name, written, other)
		}
		seen[written] = name
		if len(name) == 4 {
			continue
		}
		for _, c := range []byte("an\\\n\"\x1b1\xff\xc2") {
			names = append(names, name+string([]byte{c}))
		}
	}
}
