package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/ctl"
)

// Documents name commands and flags of masterctl that exist.
func TestCommandsExist(t *testing.T) {
	root, seen := ctl.Command(), 0
	root.InitDefaultCompletionCmd()
	span := regexp.MustCompile("`masterctl ([^`]+)`")
	for _, file := range documents(t) {
		for _, m := range span.FindAllStringSubmatch(read(t, file), -1) {
			seen++
			words := strings.Fields(m[1])
			command, rest, err := root.Find(words)
			if err != nil || command == root && !strings.HasPrefix(words[0], "-") {
				t.Errorf("%s names `masterctl %s`: got error %v, want a command that exists", file, m[1], err)
				continue
			}
			for _, word := range rest {
				if fault := flagFault(command, word); fault != "" {
					t.Errorf("%s names `masterctl %s`: got %s, want flags that exist", file, m[1], fault)
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("got %d commands, want those of all documents", seen)
	}
}

// flagFault says what is wrong with a word of a command line.
func flagFault(command *cobra.Command, word string) string {
	name, _, _ := strings.Cut(word, "=")
	long, short := strings.TrimPrefix(name, "--"), strings.TrimPrefix(name, "-")
	switch {
	case !strings.HasPrefix(word, "-") || long == "help":
		return ""
	case strings.HasPrefix(word, "--"):
		if command.Flags().Lookup(long) == nil && command.InheritedFlags().Lookup(long) == nil {
			return "it has no " + name
		}
	case len(short) != 1 || command.Flags().ShorthandLookup(short) == nil && command.InheritedFlags().ShorthandLookup(short) == nil:
		return "it has no " + name
	}
	return ""
}

// documents are all that stand beside this test, and the one above.
func documents(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob("*.md")
	if err != nil || len(list) < 10 {
		t.Fatalf("documents: got %v, error %v, want at least 10", list, err)
	}
	return append(list, "../README.md")
}

// Links lead to files and chapters that exist.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, file := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, chapter, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(file), path)
			if path == "" {
				target = file
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: got error %v, want a file that exists", file, m[1], err)
			} else if chapter != "" && strings.HasSuffix(target, ".md") && !hasChapter(read(t, target), chapter) {
				t.Errorf("%s links to %s: got no such chapter, want one that exists", file, m[1])
			}
		}
	}
}

// hasChapter reports whether a document has a heading with such an anchor, as GitHub makes them.
func hasChapter(text, anchor string) bool {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			made := strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
			if made == anchor {
				return true
			}
		}
	}
	return false
}
