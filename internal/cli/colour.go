package cli

import (
	"regexp"

	"github.com/fatih/color"
	"github.com/rivo/uniseg"
)

// Good colours what works. As all colours, it is for people, adds to what the text says, and
// comes only if standard output is a terminal, and neither NO_COLOR nor TERM=dumb is set.
func Good(text string) string { return color.New(color.FgGreen).Sprint(text) }

// Warn colours what works and should not stay so.
func Warn(text string) string { return color.New(color.FgYellow).Sprint(text) }

// Bad colours what does not work.
func Bad(text string) string { return color.New(color.FgRed).Sprint(text) }

// Bold is for the heads of tables.
func Bold(text string) string { return color.New(color.Bold).Sprint(text) }

// shownWidth returns how many columns of a terminal a text takes: none for the codes of
// colours and for marks on the letter before, two for Chinese, Japanese and Korean.
func shownWidth(text string) int { return uniseg.StringWidth(colours.ReplaceAllString(text, "")) }

var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")
