package config

import (
	"slices"
	"strings"

	wire "github.com/understudy-store/understudy/internal/mooncake"
)

// generation is the name of one of Mooncake's generations, or none.
type generation struct{ p *string }

func (v generation) set(s string) bool {
	if s != NoGeneration && !slices.Contains(wire.Names(), s) {
		return false
	}
	*v.p = s
	return true
}
func (v generation) String() string { return *v.p }
func (v generation) kind() string   { return "string" }
func (v generation) allowed() string {
	return strings.Join(wire.Names(), ", ") + " or " + NoGeneration
}

// generationListens is a list of generation=host:port, separated by ';' or ','.
type generationListens struct{ p *[]GenerationListen }

func (v generationListens) set(s string) bool {
	var list []GenerationListen
	for e := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ';' || r == ',' }) {
		name, address, ok := strings.Cut(strings.TrimSpace(e), "=")
		if !ok || !slices.Contains(wire.Names(), name) || !isHostPort(address, true) {
			return false
		}
		list = append(list, GenerationListen{name, address})
	}
	*v.p = list
	return true
}

func (v generationListens) String() string {
	var list []string
	for _, l := range *v.p {
		list = append(list, l.Generation+"="+l.Address)
	}
	return strings.Join(list, ",")
}
func (v generationListens) kind() string { return "list" }
func (v generationListens) allowed() string {
	return "generation=host:port of each port, separated by ','; generations are " + strings.Join(wire.Names(), ", ")
}
