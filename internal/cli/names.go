package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagError is for cobra's SetFlagErrorFunc: it adds the most similar known flag to the error
// for an unknown one. It also recognises flags with one dash, as Mooncake's master takes them.
func FlagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	name := unknown.GetSpecifiedName()
	if group := unknown.GetSpecifiedShortnames(); group != "" {
		name, _, _ = strings.Cut(group, "=")
	}
	known := map[string]string{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = f.Name })
	if s := Nearest(name, known); s != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, s)
	}
	return fmt.Errorf("%w; %s --help lists all flags", err, cmd.CommandPath())
}

// Nearest returns the value of the spelling that is most similar to a name, or "" if none is
// similar. The keys of the map are the spellings. '_' and '-' are the same.
func Nearest(name string, spellings map[string]string) string {
	same := func(s string) string { return strings.ReplaceAll(s, "-", "_") }
	best, least := "", max(2, len(name)/3)+1
	for spelling, meaning := range spellings {
		d := levenshtein.ComputeDistance(same(name), same(spelling))
		// The order of names settles a tie: maps have none.
		if d < least || d == least && best != "" && meaning < best {
			best, least = meaning, d
		}
	}
	return best
}
