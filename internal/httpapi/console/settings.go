package console

import (
	"cmp"
	"maps"
	"net/http"
	"regexp"
	"slices"
)

// NodeSettings are the settings of a node that should be alike on all nodes, where they
// are not the default.
type NodeSettings struct {
	NodeID  string
	Primary bool
	Values  map[string]string // nil if they are not known
}

type settingsView struct {
	Nodes []NodeSettings
	Rows  []settingRow
	Bad   int    // rows that differ
	Own   string // all settings of this node
}

type settingRow struct {
	Name   string
	Values []string
	Differ bool
}

func (c *console) settings(r *http.Request) (any, error) {
	v := settingsView{Own: withoutPasswords(c.Own)}
	var err error
	v.Nodes, err = c.nodes.get(r.Context(), c.Now, c.Settings)
	names := make(map[string]bool)
	for _, n := range v.Nodes {
		for name := range n.Values {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		v.Rows = append(v.Rows, rowOf(name, v.Nodes, c.Default))
	}
	for _, row := range v.Rows {
		if row.Differ {
			v.Bad++
		}
	}
	return v, err
}

func rowOf(name string, nodes []NodeSettings, defaultOf func(string) string) settingRow {
	row := settingRow{Name: name}
	first := ""
	for _, n := range nodes {
		value, given := n.Values[name]
		switch {
		case n.Values == nil:
			row.Values = append(row.Values, "not known")
			continue
		case !given:
			value = defaultOf(name)
		}
		first = cmp.Or(first, value)
		row.Differ = row.Differ || value != first
		row.Values = append(row.Values, value)
	}
	return row
}

var userinfo = regexp.MustCompile(`//[^/@\s"]+@`)

// withoutPasswords hides what stands before the host of a URL.
func withoutPasswords(text string) string { return userinfo.ReplaceAllString(text, "//…@") }
