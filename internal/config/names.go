package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// key is the form in which names are compared: rpc-port and rpc_port are one.
func key(name string) string { return strings.ReplaceAll(name, "-", "_") }

// names maps every spelling and alias of a known name to its canonical form.
type names map[string]string

func knownNames(known []setting, ignored []unused) names {
	n := names{configPath: configPath}
	for _, s := range known {
		n[key(s.name)] = s.name
		for _, alias := range s.aliases {
			n[alias] = s.name
		}
	}
	for _, u := range ignored {
		n[u.name] = u.name
	}
	return n
}

// canonical returns the name's canonical form, and whether it is known.
func (n names) canonical(name string) (string, bool) {
	c, ok := n[key(name)]
	return c, ok
}

// didYouMean suggests the known name next to an unknown one, or nothing.
func (n names) didYouMean(name string) string {
	best, least := "", max(2, len(name)/3)+1
	for k, canonical := range n {
		d := distance(key(name), k)
		// The order of names settles a tie: maps have none.
		if d < least || d == least && best != "" && canonical < best {
			best, least = canonical, d
		}
	}
	return best
}

// FlagError is for cobra's SetFlagErrorFunc: it adds to the error for an unknown
// flag the known flag next to it. A flag with one dash, which Mooncake's master
// takes, is found too.
func FlagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	name := unknown.GetSpecifiedName()
	if group := unknown.GetSpecifiedShortnames(); group != "" {
		name, _, _ = strings.Cut(group, "=")
	}
	known := names{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known[key(f.Name)] = f.Name })
	if s := known.didYouMean(name); s != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, s)
	}
	return fmt.Errorf("%w; %s --help lists all flags", err, cmd.CommandPath())
}

// distance is the Levenshtein distance of a and b in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
