package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/json"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/understudy-store/understudy/internal/cli"
)

// ctlAddress tells masterctl where the cluster is. A shell that has it set can
// start a node as well.
const ctlAddress = cli.EnvPrefix + "ADDRESS"

// Loader reads configurations for one role. It keeps nothing between calls.
type Loader struct {
	role Role
}

// New returns a loader for a program whose nodes try to be role first.
func New(role Role) *Loader { return &Loader{role} }

// BindFlags adds a flag for every setting, under both spellings, and a
// hidden one for every name of Mooncake's that is not used. Flags take any text:
// Load checks them together with the rest, so that all faults come at once.
func (l *Loader) BindFlags(flags *pflag.FlagSet) {
	defaults := Default(l.role)
	known, ignored := settings(&defaults), unusedNames()
	spellings := knownNames(known, ignored)
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if c, ok := spellings.canonical(name); ok {
			name = c
		}
		return pflag.NormalizedName(name)
	})
	flags.Var(&rawFlag{kind: "file"}, configPath, "YAML or JSON file with the same names as the flags")
	for _, s := range known {
		f := flags.VarPF(&rawFlag{s.value.String(), s.value.kind()}, s.name, "", s.usage)
		if s.value.kind() == boolKind {
			f.NoOptDefVal = "true"
		}
	}
	for _, u := range ignored {
		f := flags.VarPF(&rawFlag{}, u.name, "", "not used: "+u.reason)
		f.Hidden = true
		if u.boolean() {
			f.NoOptDefVal = "true"
		}
	}
}

// rawFlag is a flag that keeps its text as it was given.
type rawFlag struct{ text, kind string }

func (f *rawFlag) Set(s string) error { f.text = s; return nil }
func (f *rawFlag) String() string     { return f.text }
func (f *rawFlag) Type() string       { return f.kind }

// Load returns the configuration that the parsed flags, the environment (as
// os.Environ gives it) and the file they name make together. Flags win over the
// environment, that wins over the file, and the file over the defaults. The
// error is a Faults with everything that is wrong; the warnings are returned
// with an error too.
//
// Unknown names are faults in the file and, with cli.EnvPrefix, in the environment;
// unknown flags were refused by pflag already (see cli.FlagError). Variables that
// Kubernetes sets for a Service whose name begins with "understudy" are none.
func (l *Loader) Load(flags *pflag.FlagSet, environ []string) (Config, []Warning, error) {
	cfg := Default(l.role)
	known, ignored := settings(&cfg), unusedNames()
	r := &reader{names: knownNames(known, ignored), given: map[string]given{}}
	r.readFlags(flags)
	r.readEnvironment(environ)
	r.readFile()

	c := check{given: r.given}
	c.settings(known)
	c.unused(ignored)
	c.rules(&cfg)
	if faults := slices.Concat(c.faults, r.faults); len(faults) > 0 {
		return Config{}, c.warnings, faults
	}
	cfg.origins = map[string]string{}
	for name, g := range r.given {
		cfg.origins[name] = g.origin
	}
	return cfg, c.warnings, nil
}

// given is a value as some source wrote it.
type given struct{ text, origin string }

// reader collects what the sources give, the strongest source first.
type reader struct {
	names  names
	given  map[string]given
	faults Faults
}

func (r *reader) readFlags(flags *pflag.FlagSet) {
	p := posflag.ProviderWithFlag(flags, ".", nil, func(f *pflag.Flag) (string, any) {
		if _, ours := r.names.canonical(f.Name); !ours {
			return "", nil // a flag of the command itself, such as --help
		}
		return f.Name, f.Value.String()
	})
	r.read(p, nil, "the flags", func(name string) string { return "flag --" + name })
}

func (r *reader) readEnvironment(environ []string) {
	p := env.Provider(".", env.Opt{
		Prefix: cli.EnvPrefix,
		TransformFunc: func(name, text string) (string, any) {
			if name == ctlAddress || isServiceLink(name, text) {
				return "", nil
			}
			return strings.ToLower(strings.TrimPrefix(name, cli.EnvPrefix)), text
		},
		EnvironFunc: func() []string { return environ },
	})
	r.read(p, nil, "the environment", func(name string) string {
		return "environment variable " + cli.EnvPrefix + strings.ToUpper(name)
	})
}

// isServiceLink recognises what Kubernetes puts into every pod for a Service:
// X_SERVICE_HOST, X_SERVICE_PORT..., X_PORT=tcp://... and X_PORT_50051_TCP....
func isServiceLink(name, text string) bool {
	return strings.HasSuffix(name, "_SERVICE_HOST") || strings.Contains(name, "_SERVICE_PORT") ||
		strings.Contains(name, "_PORT") && (strings.Contains(text, "://") || strings.Contains(name, "_TCP") || strings.Contains(name, "_UDP"))
}

func (r *reader) readFile() {
	path, ok := r.given[configPath]
	if !ok || path.text == "" {
		return
	}
	parser := &lineParser{}
	switch filepath.Ext(path.text) {
	case ".yaml", ".yml":
		parser.Parser = yaml.Parser()
	case ".json":
		parser.Parser, parser.json = json.Parser(), true
	default:
		r.faults = append(r.faults, &Fault{configPath, path.text, path.origin, "the name must end in .yaml, .yml or .json"})
		return
	}
	r.read(file.Provider(path.text), parser, path.text, func(name string) string {
		if line := parser.line(name); line > 0 {
			return fmt.Sprintf("%s, line %d", path.text, line)
		}
		return path.text
	})
}

// read takes over what one source gives, unless a stronger one gave it before.
// The origin of a name is found after the source has been read.
func (r *reader) read(p koanf.Provider, parser koanf.Parser, source string, origin func(name string) string) {
	k := koanf.New(".")
	if err := k.Load(p, parser); err != nil {
		var missing *fs.PathError
		if errors.As(err, &missing) {
			err = missing.Err // the path is the source
		}
		r.faults = append(r.faults, &Fault{Origin: source, Problem: err.Error()})
		return
	}
	here := map[string]string{}
	for _, name := range k.Keys() {
		canonical, known := r.names.canonical(name)
		text, fits := asText(k.Get(name), canonical == etcdEndpoints)
		g := given{text, origin(name)}
		first, twice := here[canonical]
		switch {
		case !known:
			r.unknown(name, g)
		case !fits:
			r.fault(name, g, "must be a text, a number, true or false; other text needs quotes")
		case twice:
			r.fault(name, g, fmt.Sprintf("is the same setting as %s, which is given too", first))
		case canonical == configPath && parser != nil:
			r.fault(name, g, "a file cannot name another one")
		default:
			here[canonical] = name
			if _, stronger := r.given[canonical]; !stronger {
				r.given[canonical] = g
			}
		}
	}
}

func (r *reader) fault(name string, g given, problem string) {
	r.faults = append(r.faults, &Fault{name, g.text, g.origin, problem})
}

func (r *reader) unknown(name string, g given) {
	problem := "unknown name"
	if s := cli.Nearest(name, r.names); s != "" {
		problem += fmt.Sprintf("; did you mean %s?", s)
	}
	r.fault(name, g, problem)
}
