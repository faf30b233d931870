package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// A finding is one place that breaks a rule.
type finding struct {
	subject string // what an allowance of the rule names
	text    string // where and what, for people
}

// A check returns all places of a module that break a rule.
type check func(*module) []finding

// packageComments demands a comment in front of every package: "Package name
// ..." for a library, any for a program.
func packageComments(m *module) []finding {
	documented := make(map[string]bool) // by folder
	for _, f := range m.product() {
		doc := strings.TrimSpace(f.ast.Doc.Text())
		name := f.ast.Name.Name
		good := strings.HasPrefix(doc, "Package "+name+" ") || name == "main" && doc != ""
		documented[f.pkg] = documented[f.pkg] || good || f.generated
	}
	var found []finding
	for _, pkg := range slices.Sorted(maps.Keys(documented)) {
		if !documented[pkg] {
			found = append(found, finding{pkg, fmt.Sprintf("%s has no package comment that says what it is for and what it must never do", pkg)})
		}
	}
	return found
}

// mayImportOurs lets packages import, of this module, only what is listed, by
// themselves and through what they import.
func mayImportOurs(from []string, only ...string) check {
	return importing(from, nil, func(in imported) bool { return in.ours && !matches(in.path, only) })
}

// mayName lets packages import, of this module, only what is listed. What that
// imports in turn is its own matter.
func mayName(from []string, only ...string) check {
	return importing(from, everyone, func(in imported) bool { return in.ours && !matches(in.path, only) })
}

// mustNotImport refuses some packages: our own by their folder, others by their
// import path. They are refused through any chain of packages of ours.
func mustNotImport(from []string, refused ...string) check {
	return mustNotImportBut(from, nil, refused...)
}

// mustNotImportBut is mustNotImport for all chains but those through some
// packages.
func mustNotImportBut(from, through []string, refused ...string) check {
	return importing(from, through, func(in imported) bool { return matches(in.path, refused) })
}

// importing finds the imports in non-test files of some packages that are
// wrong, also those of the packages of ours that they import, and so on. It looks
// no further at packages that may be passed through, and at those to which the
// rule applies, which have findings of their own. The subject of a finding is the
// wrong import, and its text the chain that leads there. A package never breaks a
// rule by importing what is below itself.
func importing(from, through []string, wrong func(imported) bool) check {
	return func(m *module) []finding {
		var found []finding
		reported := make(map[string]bool)
		for _, pkg := range slices.Sorted(maps.Keys(m.imports)) {
			if !matches(pkg, from) {
				continue
			}
			ends := func(in imported) bool { return wrong(in) || matches(in.path, from) || matches(in.path, through) }
			for _, c := range m.chains(pkg, ends) {
				last := c[len(c)-1]
				subject := last.by + " -> " + last.path
				if wrong(last) && !reported[subject] && !(last.ours && matches(last.path, []string{pkg + "/..."})) {
					reported[subject] = true
					found = append(found, finding{subject, m.line(last.spec) + ": " + c.String()})
				}
			}
		}
		return found
	}
}

// noGoroutines refuses go statements, and what stands for them, in some
// packages; allowances name the file.
func noGoroutines(in []string) check {
	return func(m *module) []finding {
		var found []finding
		for _, f := range m.product() {
			if !matches(f.pkg, in) {
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if g, ok := n.(*ast.GoStmt); ok {
					found = append(found, finding{f.path, m.line(g) + ": starts a goroutine"})
				}
				return true
			})
			for _, use := range f.uses("sync", "WaitGroup") {
				found = append(found, finding{f.path, m.line(use) + ": uses sync.WaitGroup"})
			}
		}
		return found
	}
}

// noTime refuses some functions of package time in some packages; allowances
// name the file.
func noTime(in, except []string, functions ...string) check {
	return func(m *module) []finding {
		var found []finding
		for _, f := range m.product() {
			if !matches(f.pkg, in) || matches(f.pkg, except) {
				continue
			}
			for _, use := range f.uses("time", functions...) {
				found = append(found, finding{f.path, fmt.Sprintf("%s: uses time.%s", m.line(use), use.Sel.Name)})
			}
		}
		return found
	}
}

// fileLength bounds the lines of hand-written files; allowances name the file.
func fileLength(limit int) check {
	return func(m *module) []finding {
		var found []finding
		for _, f := range m.files {
			if !f.generated && f.lines > limit {
				found = append(found, finding{f.path, fmt.Sprintf("%s has %d lines, at most %d: split it by what it does", f.path, f.lines, limit)})
			}
		}
		return found
	}
}

// functionLength bounds the lines of hand-written functions, from "func" to
// the closing brace; allowances name "path:Function".
func functionLength(limit, testLimit int) check {
	return func(m *module) []finding {
		var found []finding
		for _, f := range m.files {
			if f.generated {
				continue
			}
			most := limit
			if f.test {
				most = testLimit
			}
			for _, d := range f.ast.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				lines := m.fset.Position(fn.End()).Line - m.fset.Position(fn.Type.Func).Line + 1
				if lines > most {
					found = append(found, finding{
						subject: f.path + ":" + fn.Name.Name,
						text:    fmt.Sprintf("%s: %s has %d lines, at most %d: give its steps names", m.line(fn.Name), fn.Name.Name, lines, most),
					})
				}
			}
		}
		return found
	}
}
