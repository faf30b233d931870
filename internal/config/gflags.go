package config

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// maxFlagFiles bounds the files of flags that one command line names, directly or through
// other such files.
const maxFlagFiles = 16

// GFlags rewrites a command line of gflags, which Mooncake's master has, to one that
// the flags parse: one dash for two, --noNAME for a boolean flag, and in place of
// --flagfile=PATH the flags of that file, one a line. Unknown flags that
// --undefok=NAME,... names are ignored. It fails if a file cannot be read.
func GFlags(flags *pflag.FlagSet, args []string) (list, ignored []string, err error) {
	files := 0
	if list, err = gflags(flags, args, &files); err != nil {
		return nil, nil, err
	}
	list, ignored = dropUndefined(flags, list)
	return list, ignored, nil
}

const undefok = "--undefok="

// dropUndefined removes --undefok from rewritten flags, and the unknown flags that it names.
// Like gflags, it does not remove a value in the next argument.
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
	for _, arg := range args[:end] {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		switch {
		case strings.HasPrefix(arg, undefok):
		case strings.HasPrefix(arg, "--") && may[key(name)] && flags.Lookup(name) == nil:
			ignored = append(ignored, arg)
		default:
			kept = append(kept, arg)
		}
	}
	return append(kept, args[end:]...), ignored
}

func gflags(flags *pflag.FlagSet, args []string, files *int) ([]string, error) {
	list := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(list, args[i:]...), nil
		}
		name, text, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		dashes := len(arg) - len(strings.TrimLeft(arg, "-"))
		isFlag := dashes == 1 || dashes == 2
		if isFlag && (name == "flagfile" || name == "undefok") && !given && i+1 < len(args) {
			i, text, given = i+1, args[i+1], true
		}
		switch {
		case !isFlag, name == "":
			list = append(list, arg)
		case name == "flagfile" && given:
			from, err := flagFiles(flags, text, files)
			if err != nil {
				return nil, err
			}
			list = append(list, from...)
		case name == "undefok" && given:
			list = append(list, undefok+text)
		case dashes == 1 && isShort(arg, args[i+1:]):
			list = append(list, arg)
		case !given && isNegated(flags, name):
			list = append(list, "--"+strings.TrimPrefix(name, "no")+"=false")
		case dashes == 1 && startsName(name):
			list = append(list, "-"+arg)
		default:
			list = append(list, arg)
		}
	}
	return list, nil
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

// flagFiles returns the flags of files, whose names commas separate.
func flagFiles(flags *pflag.FlagSet, paths string, files *int) (list []string, err error) {
	for path := range strings.SplitSeq(paths, ",") {
		if path == "" { // as gflags has it: no file
			continue
		}
		if *files++; *files > maxFlagFiles {
			return nil, fmt.Errorf("--flagfile=%s: at most %d files of flags are read", path, maxFlagFiles)
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
			case lacksValue(flags, line):
				return nil, fmt.Errorf("--flagfile=%s: %q has no value; a line is --name=value", path, line)
			default:
				lines = append(lines, line)
			}
		}
		from, err := gflags(flags, lines, files)
		if err != nil {
			return nil, err
		}
		list = append(list, from...)
	}
	return list, nil
}

// lacksValue reports whether a line of a file has a flag without its value, so that the flag
// would take the next argument instead.
func lacksValue(flags *pflag.FlagSet, line string) bool {
	f := flags.Lookup(strings.TrimLeft(line, "-"))
	return f != nil && f.NoOptDefVal == "" || slices.Contains([]string{"flagfile", "undefok"}, strings.TrimLeft(line, "-"))
}
