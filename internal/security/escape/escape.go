// Package escape writes text that peers chose, such as keys and names of segments, so that it
// prints: it cannot break its line, or control a terminal.
//
// It must never write two names alike.
package escape

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Name returns a name for a line of its own. One that prints stays as it is, backslashes and
// spaces included. One with characters that do not print, such as a newline, or that is not
// UTF-8, is quoted as Go does: "a\n". So is one that begins with a quotation mark, so that no
// two names are written alike.
func Name(name string) string {
	if Prints(name) && !strings.HasPrefix(name, `"`) {
		return name
	}
	return strconv.Quote(name)
}

// Prints reports whether a text is UTF-8 and has only characters that print, on one line.
func Prints(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' {
			return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
		}
	}
	return true
}
