package config

import "strings"

// key is the form in which names are compared: rpc-port and rpc_port are one.
func key(name string) string { return strings.ReplaceAll(name, "-", "_") }

// names maps every spelling and alias of a known name to its canonical form.
type names map[string]string

func knownNames() names {
	n := names{configPath: configPath}
	for _, s := range append(settings(new(Config)), Unused()...) {
		for spelling := range strings.FieldsSeq(s.Names) {
			n[key(spelling)] = s.name()
		}
	}
	return n
}

// canonical returns the name's canonical form, and whether it is known.
func (n names) canonical(name string) (string, bool) {
	c, ok := n[key(name)]
	return c, ok
}
