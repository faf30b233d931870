package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	// Name is the setting's canonical name, or the unknown name as it was given;
	// empty for a file that cannot be read.
	Name string
	// Value is the text that was given, or that the setting has by default.
	Value string
	// Origin says where the value came from: a flag, an environment variable, a
	// file and line, or "default".
	Origin string
	// Problem says what is wrong and what is allowed.
	Problem string
}

func (f *Fault) Error() string {
	if f.Name == "" {
		return fmt.Sprintf("%s: %s", f.Origin, f.Problem)
	}
	return fmt.Sprintf("%s = %q (%s): %s", oneLine(f.Name), f.Value, f.Origin, f.Problem)
}

// oneLine quotes a name that has other than plain characters, so that it fits on a line.
func oneLine(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// Faults is everything that is wrong with a configuration: values in the order
// of the table of settings, then rules between them, then unknown names and
// files. errors.As finds a single *Fault in it.
type Faults []*Fault

// Error lists the faults, one a line.
func (f Faults) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the configuration has %d fault(s):", len(f))
	for _, fault := range f {
		b.WriteString("\n  " + fault.Error())
	}
	return b.String()
}

// Unwrap makes the single faults visible to errors.As.
func (f Faults) Unwrap() []error {
	list := make([]error, len(f))
	for i, fault := range f {
		list[i] = fault
	}
	return list
}

// Warning is a remark that does not keep the node from starting. Its Problem says what
// follows from the value, and what to do if that is not wanted. The caller logs each once.
type Warning Fault

func (w Warning) String() string { return (*Fault)(&w).Error() }
