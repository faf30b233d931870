package config

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Table is the reference of all settings in Markdown, for the documentation.
func Table() string {
	c := Default(Primary)
	var b strings.Builder
	for i, s := range sections(&c) {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "### %s\n\n", s.title)
		b.WriteString("| setting | default | must be | meaning | from |\n|---|---|---|---|---|\n")
		for _, s := range s.settings {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", flagCell(s), code(s.value.String()), cell(s.value.allowed()), cell(s.usage), s.from)
		}
	}
	return b.String()
}

// UnusedTable is the list, in Markdown, of the names of Mooncake's master that
// are accepted and not used.
func UnusedTable() string {
	var b strings.Builder
	b.WriteString("| name | accepted | why it is not used |\n|---|---|---|\n")
	for _, u := range unusedNames() {
		fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", u.name, cell(u.allowed()), cell(u.reason))
	}
	return b.String()
}

func flagCell(s setting) string {
	out := code("--" + s.name)
	for _, alias := range s.aliases {
		out += ", " + code("--"+alias)
	}
	return out
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// cell keeps text from ending its cell in a Markdown table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// YAML is the effective configuration as a file that --config_path takes, each
// value with where it came from. A setting that is empty is left out.
func (c Config) YAML() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, s := range settings(&c) {
		value, origin := s.value.String(), "default"
		if o, given := c.origins[s.name]; given {
			origin = o
		}
		if value != "" {
			fmt.Fprintf(w, "%s:\t%q\t# %s\n", s.name, value, origin)
		}
	}
	w.Flush()
	return b.String()
}
