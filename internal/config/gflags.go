package config

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// maxFlagSources bounds the files of flags, and the lists of --fromenv, that one command line
// names, directly or through each other.
const maxFlagSources = 16

// GFlags rewrites a command line of gflags, which Mooncake's master has, to one that
// the flags parse:
//   - one dash for two, and --noNAME for a boolean flag;
//   - in place of --flagfile=PATH the flags of that file, one a line;
//   - in place of --fromenv=NAME,... and --tryfromenv=NAME,... each flag with the value of the
//     environment variable FLAGS_NAME, which lookup returns as os.LookupEnv does;
//   - unknown flags that --undefok=NAME,... names are left out;
//   - all ways to ask for help are --help, and then nothing else counts;
//   - an argument that is no flag is left out if it is blank, or says yes to the boolean flag
//     before it. Mooncake's master reads none of them.
//
// It fails if a file cannot be read, if a variable of --fromenv is missing, or if a boolean flag
// is followed by a no, which Mooncake's master would take for a yes. Notes are lines for
// people: what was left out.
func GFlags(flags *pflag.FlagSet, args []string, lookup func(string) (string, bool)) (list, notes []string, err error) {
	g := &gflags{flags: flags, lookup: lookup}
	list, err = g.rewrite(args)
	switch {
	case err != nil:
		return nil, nil, err
	case g.help != "":
		return []string{g.help}, nil, nil
	}
	list, ignored := dropUndefined(flags, list)
	if len(ignored) > 0 {
		g.notes = append(g.notes, "unknown flags are ignored, as --undefok says: "+strings.Join(ignored, " "))
	}
	return onePort(list), g.notes, nil
}

// onePort leaves out --port beside --rpc_port, wherever they stand, unless that is 0: as in
// Mooncake. To pflag they are one flag, whose last value counts.
func onePort(list []string) []string {
	nameOf := func(arg string) string {
		name, _, _ := strings.Cut(arg, "=")
		return key(name)
	}
	given := make(map[string]string)
	for _, arg := range list {
		given[nameOf(arg)] = arg
	}
	other := key("--port")
	if strings.HasSuffix(given[key("--rpc_port")], "=0") {
		other = key("--rpc_port")
	}
	if given[key("--port")] == "" || given[key("--rpc_port")] == "" {
		return list
	}
	return slices.DeleteFunc(list, func(arg string) bool { return nameOf(arg) == other })
}

const undefok = "--undefok="

// dropUndefined removes --undefok from rewritten flags, and the unknown flags that it names,
// each with a value that is the next argument.
func dropUndefined(flags *pflag.FlagSet, args []string) (kept, ignored []string) {
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	may := make(map[string]bool)
	for _, arg := range args[:end] {
		if names, ok := strings.CutPrefix(arg, undefok); ok {
			for name := range strings.SplitSeq(names, ",") {
				may[key(name)], may["no"+key(name)] = true, true
			}
		}
	}
	kept = make([]string, 0, len(args)) // not nil, which cobra replaces by the arguments of the process
	valueNext := false
	for _, arg := range args[:end] {
		name, _, given := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		isValue := valueNext && !strings.HasPrefix(arg, "-")
		valueNext = false
		switch {
		case strings.HasPrefix(arg, undefok):
		case isValue:
			ignored = append(ignored, arg)
		case strings.HasPrefix(arg, "--") && may[key(name)] && flags.Lookup(name) == nil:
			ignored, valueNext = append(ignored, arg), !given
		default:
			kept = append(kept, arg)
		}
	}
	return append(kept, args[end:]...), ignored
}

// gflags is one command line that is being rewritten.
type gflags struct {
	flags   *pflag.FlagSet
	lookup  func(string) (string, bool) // of the environment
	sources int                         // that were read
	help    string                      // --help or --version, if one was asked for
	notes   []string
}

// rewrite returns arguments as pflag takes them.
func (g *gflags) rewrite(args []string) ([]string, error) {
	list := make([]string, 0, len(args))
	boolean := "" // the flag that was the last argument, if it is a boolean one without a value
	for i := 0; i < len(args); i++ {
		arg, before := args[i], boolean
		boolean = ""
		if arg == "--" {
			return append(list, args[i:]...), nil
		}
		name, text, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		dashes := len(arg) - len(strings.TrimLeft(arg, "-"))
		isFlag := (dashes == 1 || dashes == 2) && name != ""
		if isFlag && g.ownValue(name) && !given && i+1 < len(args) {
			i, text, given = i+1, args[i+1], true
		}
		more, done, err := []string(nil), false, error(nil)
		if isFlag {
			more, done, err = g.ofGFlags(name, text, given)
		} else if before != "" || strings.TrimSpace(arg) == "" {
			done, err = g.word(before, arg)
		}
		switch {
		case err != nil:
			return nil, err
		case done:
			list = append(list, more...)
		case !isFlag:
			list = append(list, arg)
		case dashes == 1 && isShort(arg, args[i+1:]):
			list = append(list, arg)
		case !given && isNegated(g.flags, name):
			list = append(list, "--"+strings.TrimPrefix(name, "no")+"=false")
		case !startsName(name):
			list = append(list, arg)
		default:
			arg = strings.Repeat("-", 2-dashes) + arg
			switch f := g.flags.Lookup(name); {
			case f == nil || given:
			case f.NoOptDefVal != "":
				boolean = name
			case i+1 < len(args): // its value, whatever it looks like
				i++
				arg += "=" + args[i]
			}
			list = append(list, arg)
		}
	}
	return list, nil
}

// ownValue reports whether a flag of gflags' own takes a value.
func (g *gflags) ownValue(name string) bool {
	return slices.Contains([]string{"flagfile", "fromenv", "tryfromenv", "undefok", "helpon", "helpmatch"}, name)
}

// ofGFlags returns what stands for a flag of gflags' own, and whether it is one.
func (g *gflags) ofGFlags(name, text string, given bool) (list []string, is bool, err error) {
	switch {
	case g.ownValue(name) && !given:
		return nil, false, nil // pflag refuses it
	case name == "flagfile":
		list, err = g.files(text)
	case name == "fromenv", name == "tryfromenv":
		list, err = g.environment(name, text)
	case name == "undefok":
		list = []string{undefok + text}
	case name == "helpon", name == "helpmatch": // of a source file of the C++ program
		if text != "" {
			g.help = "--help"
		}
	default:
		return nil, g.isHelp(name, text, given), nil
	}
	return list, true, err
}

// isHelp notes a boolean flag that asks for help or the version, or does not.
func (g *gflags) isHelp(name, text string, given bool) bool {
	positive, negated := strings.CutPrefix(name, "no")
	on, ok := true, true
	if given {
		on, ok = parseBool(text)
	}
	switch {
	case !ok || negated && given:
		return false
	case slices.Contains([]string{"help", "helpfull", "helpshort", "helppackage"}, positive): //nolint:misspell // gflags writes it so
		positive = "help"
	case positive != "version":
		return false
	}
	if on && !negated {
		g.help = "--" + positive
	}
	return true
}

// word judges an argument that is no flag, and blank or after a boolean flag without a value. It
// reports whether the argument is left out.
func (g *gflags) word(flag, arg string) (bool, error) {
	on, ok := parseBool(arg)
	switch {
	case strings.TrimSpace(arg) == "":
		return true, nil
	case !ok:
		return false, nil // cobra refuses it
	case !on:
		return false, fmt.Errorf("%q after --%s does not turn it off: write --%s=%s. Mooncake's master reads no such word, and takes the flag for true", arg, flag, flag, arg)
	}
	g.notes = append(g.notes, fmt.Sprintf("%q after --%s is ignored: the flag alone says true; write --%s=%s", arg, flag, flag, arg))
	return true, nil
}

// isShort reports whether an argument is -h or -v, and not gflags' -v with a level.
func isShort(arg string, next []string) bool {
	if arg == "-v" && len(next) > 0 {
		_, err := strconv.Atoi(next[0])
		return err != nil
	}
	return arg == "-h" || arg == "-v"
}

// isNegated reports whether a name is that of a boolean flag, with "no" before it.
func isNegated(flags *pflag.FlagSet, name string) bool {
	positive, negated := strings.CutPrefix(name, "no")
	if !negated || flags.Lookup(name) != nil {
		return false
	}
	f := flags.Lookup(positive)
	return f != nil && f.NoOptDefVal == "true"
}

// startsName tells a name from a negative number.
func startsName(name string) bool {
	return name[0] >= 'a' && name[0] <= 'z' || name[0] >= 'A' && name[0] <= 'Z'
}

// another counts a file or a list of variables.
func (g *gflags) another(flag, text string) error {
	if g.sources++; g.sources > maxFlagSources {
		return fmt.Errorf("--%s=%s: at most %d files of flags and lists of variables are read", flag, text, maxFlagSources)
	}
	return nil
}

// environment returns flags with the values of environment variables; commas separate the names.
func (g *gflags) environment(flag, names string) (list []string, err error) {
	if err := g.another(flag, names); err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(names, ",") {
		own := g.ownValue(name)
		text, set := g.lookup("FLAGS_" + name)
		switch {
		case name == "": // as in --fromenv=
		case g.flags.Lookup(name) == nil && !own:
			list = append(list, "--"+name) // unknown, and pflag says so, unless --undefok has it
		case !set && flag == "fromenv":
			return nil, fmt.Errorf("--fromenv=%s: there is no environment variable FLAGS_%s; --tryfromenv does without", name, name)
		case !set:
		case own:
			from, err := g.rewrite([]string{"--" + name + "=" + text})
			if err != nil {
				return nil, err
			}
			list = append(list, from...)
		default:
			list = append(list, "--"+name+"="+text)
		}
	}
	return list, nil
}

// files returns the flags of files, whose names commas separate.
func (g *gflags) files(paths string) (list []string, err error) {
	for path := range strings.SplitSeq(paths, ",") {
		if path == "" { // as gflags has it: no file
			continue
		}
		if err := g.another("flagfile", path); err != nil {
			return nil, err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("--flagfile: %w", err)
		}
		var lines []string
		for line := range strings.Lines(string(b)) {
			switch line = strings.TrimSpace(line); {
			case line == "", line[0] == '#':
			case line[0] != '-':
				return nil, fmt.Errorf("--flagfile=%s: %q is no flag; a line is --name=value", path, line)
			case g.lacksValue(line):
				return nil, fmt.Errorf("--flagfile=%s: %q has no value; a line is --name=value", path, line)
			default:
				lines = append(lines, line)
			}
		}
		from, err := g.rewrite(lines)
		if err != nil {
			return nil, err
		}
		list = append(list, from...)
	}
	return list, nil
}

// lacksValue reports whether a line of a file has a flag without its value, so that the flag
// would take the next argument instead.
func (g *gflags) lacksValue(line string) bool {
	name := strings.TrimLeft(line, "-")
	f := g.flags.Lookup(name)
	return f != nil && f.NoOptDefVal == "" || g.ownValue(name)
}
