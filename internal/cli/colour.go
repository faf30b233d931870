package cli

import (
	"regexp"

	"github.com/fatih/color"
	"github.com/rivo/uniseg"
)

// Good colours what works. Colours appear only if standard output is a terminal and neither
// NO_COLOR nor TERM=dumb is set, so the text must say the same without them.
func Good(text string) string { return color.New(color.FgGreen).Sprint(text) }

// Warn colours what works but needs attention.
func Warn(text string) string { return color.New(color.FgYellow).Sprint(text) }

// Bad colours what does not work.
func Bad(text string) string { return color.New(color.FgRed).Sprint(text) }

// Plain leaves a text without a colour.
func Plain(text string) string { return text }

// Bold is for the heads of tables.
func Bold(text string) string { return color.New(color.Bold).Sprint(text) }

// shownWidth returns how many columns a text takes on a terminal. Colour codes and combining
// marks take none, Chinese, Japanese and Korean characters two.
func shownWidth(text string) int { return uniseg.StringWidth(colours.ReplaceAllString(text, "")) }

var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")
