package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/promote"
)

// ctlAddress tells masterctl where the cluster is. A shell that has it set can
// start a node as well.
const ctlAddress = cli.EnvPrefix + "ADDRESS"

// BindFlags adds a flag for every setting, under both spellings, and a
// hidden one for every name of Mooncake's that is not used. Flags take any text:
// Load checks them together with the rest, so that all faults come at once.
func BindFlags(flags *pflag.FlagSet) {
	spellings := knownNames()
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if c, ok := spellings.canonical(name); ok {
			name = c
		}
		return pflag.NormalizedName(name)
	})
	flags.Var(&rawFlag{kind: "file"}, configPath, "YAML or JSON file with the same names as the flags")
	add := func(s Setting, usage string) *pflag.Flag {
		f := flags.VarPF(&rawFlag{s.Default, s.Kind}, s.name(), "", usage)
		if s.Kind == boolKind {
			f.NoOptDefVal = "true"
		}
		return f
	}
	for _, s := range settings(new(Config)) {
		add(s, s.Usage)
	}
	for _, s := range Unused() {
		add(s, "not used: "+s.Usage).Hidden = true
	}
}

// rawFlag is a flag that keeps its text as it was given.
type rawFlag struct{ text, kind string }

func (f *rawFlag) Set(s string) error { f.text = s; return nil }
func (f *rawFlag) String() string     { return f.text }
func (f *rawFlag) Type() string       { return f.kind }

// Load returns the configuration of a node that first tries to take a role, from parsed flags,
// the environment (as os.Environ returns it), and the file that they name. Flags override the
// environment, which overrides the file, which overrides the defaults. The error is a Faults
// with everything that is wrong. Load returns warnings also with an error.
//
// Unknown names in the file are faults, and so are unknown variables that begin with
// cli.EnvPrefix, except those that Kubernetes sets for a Service whose name begins with
// "understudy". pflag has refused unknown flags before (see cli.FlagError).
func Load(role promote.Role, flags *pflag.FlagSet, environ []string) (Config, []Warning, error) {
	cfg := Default(role)
	l := &loader{names: knownNames(), given: map[string]given{}}
	l.readFlags(flags)
	l.readEnvironment(environ)
	l.readFile()
	unreadable := l.faults
	l.faults = nil
	l.apply(&cfg)
	l.listenOnInterface(&cfg)
	l.takeBackend(&cfg)
	l.judge(&cfg)
	if faults := slices.Concat(l.faults, unreadable); len(faults) > 0 {
		return Config{}, l.warnings, faults
	}
	cfg.origins = map[string]string{}
	for name, g := range l.given {
		cfg.origins[name] = g.origin
	}
	return cfg, l.warnings, nil
}

// takeBackend replaces the endpoints of etcd by those of the HA backend, as Mooncake
// does.
func (l *loader) takeBackend(cfg *Config) {
	if len(cfg.HA.Backend) == 0 {
		return
	}
	g := l.given[backendConnstring]
	if !cfg.HA.Enabled {
		l.warn(backendConnstring, g, withoutHA)
		return
	}
	if len(cfg.HA.EtcdEndpoints) > 0 && !slices.Equal(cfg.HA.EtcdEndpoints, cfg.HA.Backend) {
		l.warn(backendConnstring, g, "is used, and not etcd_endpoints, which differs")
	}
	cfg.HA.EtcdEndpoints = cfg.HA.Backend
}

func (l *loader) listenOnInterface(cfg *Config) {
	name := cfg.Listen.RPCInterface
	if name == "" {
		return
	}
	address, err := interfaceAddress(name)
	if err != nil {
		l.fault("rpc_interface", l.given["rpc_interface"], err.Error())
		return
	}
	cfg.Listen.RPCAddress = address
}

// given is a value as some source wrote it.
type given struct {
	text, origin string
	file         bool // it comes from the file
}

// loader collects the values of all sources, the strongest source first, and turns them into
// fields, faults and warnings.
type loader struct {
	names    names
	given    map[string]given // by canonical name
	faults   Faults
	warnings []Warning
}

func (l *loader) fault(name string, g given, problem string) {
	l.faults = append(l.faults, &Fault{name, g.text, g.origin, problem})
}

func (l *loader) warn(name string, g given, problem string) {
	l.warnings = append(l.warnings, Warning{name, g.text, g.origin, problem})
}

func (l *loader) readFlags(flags *pflag.FlagSet) {
	values := map[string]any{}
	flags.Visit(func(f *pflag.Flag) {
		if _, ours := l.names.canonical(f.Name); ours { // not one of the command itself, such as --help
			values[f.Name] = f.Value.String()
		}
	})
	l.read(values, func(name string) given { return given{origin: "flag --" + name} })
}

func (l *loader) readEnvironment(environ []string) {
	values := map[string]any{}
	for _, variable := range environ {
		variable, text, _ := strings.Cut(variable, "=")
		name, ours := strings.CutPrefix(variable, cli.EnvPrefix)
		if ours && name != "" && variable != ctlAddress && !isServiceLink(variable, text) {
			values[strings.ToLower(name)] = text
		}
	}
	l.read(values, func(name string) given {
		return given{origin: "environment variable " + cli.EnvPrefix + strings.ToUpper(name)}
	})
}

// isServiceLink recognises what Kubernetes puts into every pod for a Service:
// X_SERVICE_HOST, X_SERVICE_PORT..., X_PORT=tcp://... and X_PORT_50051_TCP....
func isServiceLink(name, text string) bool {
	return strings.HasSuffix(name, "_SERVICE_HOST") || strings.Contains(name, "_SERVICE_PORT") ||
		strings.Contains(name, "_PORT") && (strings.Contains(text, "://") || strings.Contains(name, "_TCP") || strings.Contains(name, "_UDP"))
}

func (l *loader) readFile() {
	path, ok := l.given[configPath]
	if !ok || path.text == "" {
		return
	}
	var parse func([]byte) (fileContent, error)
	switch filepath.Ext(path.text) {
	case ".yaml", ".yml":
		parse = parseYAML
	case ".json":
		parse = parseJSON
	default:
		l.fault(configPath, path, "the name must end in .yaml, .yml or .json")
		return
	}
	b, err := os.ReadFile(path.text)
	var missing *fs.PathError
	if errors.As(err, &missing) {
		err = missing.Err // the fault names the path anyway
	}
	var content fileContent
	if err == nil {
		content, err = parse(b)
	}
	if err != nil {
		l.fault("", given{origin: path.text}, err.Error())
		return
	}
	from := func(name string) given {
		outer, _, _ := strings.Cut(name, ".")
		if line := content.lines[outer]; line > 0 {
			return given{origin: fmt.Sprintf("%s, line %d", path.text, line), file: true}
		}
		return given{origin: path.text, file: true}
	}
	values := flat(content.values)
	for name, v := range values {
		if canonical, _ := l.names.canonical(name); canonical == configPath {
			g := from(name)
			g.text = fmt.Sprint(v)
			l.fault(name, g, "a file cannot name another one")
			delete(values, name)
		}
	}
	l.read(values, from)
}

// read takes the values of one source, except those that a stronger source has given.
func (l *loader) read(values map[string]any, from func(name string) given) {
	here := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		canonical, known := l.names.canonical(name)
		g, fits := from(name), false
		g.text, fits = asText(values[name], canonical == etcdEndpoints)
		first, twice := here[canonical]
		switch {
		case !known:
			problem := "unknown name"
			if s := cli.Nearest(name, l.names); s != "" {
				problem += fmt.Sprintf("; did you mean %s?", s)
			}
			l.fault(name, g, problem)
		case !fits:
			l.fault(name, g, "must be a text, a number, true or false; other text needs quotes")
		case twice:
			l.fault(name, g, fmt.Sprintf("is the same setting as %s, which is given too", first))
		default:
			here[canonical] = name
			if _, stronger := l.given[canonical]; !stronger {
				l.given[canonical] = g
			}
		}
	}
}

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

func (n names) canonical(name string) (string, bool) {
	c, ok := n[key(name)]
	return c, ok
}
