package archtest

import (
	"strings"
	"testing"
	"testing/fstest"
)

// A sample is a small module that breaks one rule, and the place where.
type sample struct {
	rule  string
	files map[string]string // path to source
	want  string            // part of the finding
}

func samples() []sample {
	return []sample{
		{"every package says what it is for",
			map[string]string{"a/a.go": "// Some words.\npackage a\n", "b/b.go": "// Package b is fine.\npackage b\n"},
			"a has no package comment"},
		{"every package says what it is for",
			map[string]string{"cmd/a/main.go": "package main\n"},
			"cmd/a has no package comment"},

		{"the vocabulary of errors knows nothing of ours", importing1("errs", "segment"), "errs imports segment"},
		{"the pure core knows only itself and pure helpers", importing1("metadata", "journal"), "metadata imports journal"},
		{"the allocator knows nothing of objects", importing1("segment", "metadata"), "segment imports metadata"},
		{"the pure core does no I/O, logs nothing and has no contexts", importing2("segment", "os"), "segment imports os"},
		{"the pure core does no I/O, logs nothing and has no contexts", importing2("metadata/snapshot", "log/slog"), "metadata/snapshot imports log/slog"},
		{"the pure core starts no goroutines",
			map[string]string{"metadata/a.go": "package metadata\nfunc f() {\n\tgo f()\n}\n"},
			"metadata/a.go:3: starts a goroutine"},
		{"the pure core starts no goroutines",
			map[string]string{"segment/a.go": "package segment\nimport \"sync\"\nvar w sync.WaitGroup\n"},
			"segment/a.go:3: uses sync.WaitGroup"},
		{"stories are loops that somebody else starts: internal/app, and promote for what lives as long as a term",
			map[string]string{"eviction/a.go": "package eviction\nfunc f() {\n\tgo f()\n}\n"},
			"eviction/a.go:3: starts a goroutine"},
		{"a use case runs on the goroutine of its call",
			map[string]string{"internal/service/a.go": "package service\nfunc f() {\n\tgo f()\n}\n"},
			"internal/service/a.go:3: starts a goroutine"},
		{"the pure core has no clock: time is an argument",
			map[string]string{"segment/a.go": "package segment\nimport clock \"time\"\nfunc f() { clock.Sleep(1) }\n"},
			"segment/a.go:3: uses time.Sleep"},

		{"features know neither the wiring nor what is in front of them", importing1("journal/record", "internal/rpc"), "journal/record imports internal/rpc"},
		{"a story uses those that come before it only: leases, evictions, takeovers", importing1("leasesync", "eviction"), "leasesync imports eviction"},
		{"evictions know nothing of deletions and takeovers", importing1("eviction", "promote"), "eviction imports promote"},
		{"deletions know no other story", importing1("deleteevents", "leasesync"), "deleteevents imports leasesync"},
		{"takeovers know nothing of deletions", importing1("promote/follower", "deleteevents"), "promote/follower imports deleteevents"},
		{"the journal does not know what is written in it", importing1("journal", "eviction"), "journal imports eviction"},
		{"the use cases do not know how they are called", importing1("internal/service", "internal/rpc"), "internal/service imports internal/rpc"},
		{"front ends know no story, only the use cases", importing1("internal/rpc", "eviction"), "internal/rpc imports eviction"},
		{"programs are flags and signals", importing1("cmd/master", "internal/service"), "cmd/master imports internal/service"},
		{"nothing imports a program", importing1("internal/app", "cmd/master"), "internal/app imports cmd/master"},
		{"the API is a contract, without code of ours", importing1("api/understudy/v1", "errs"), "api/understudy/v1 imports errs"},
		{"the client does not contain the server", importing1("client", "metadata"), "client imports metadata"},
		{"the embedded etcd knows nothing of ours", importing1("internal/etcd/etcdserver", "journal"), "internal/etcd/etcdserver imports journal"},
		{"what an operator installs has no etcd server, no checker and no laboratory",
			importing2("cmd/masterctl", "go.etcd.io/etcd/server/v3/embed"), "cmd/masterctl imports go.etcd.io/etcd/server/v3/embed"},
		{"what an operator installs has no etcd server, no checker and no laboratory",
			chained("cmd/masterctl", "internal/ctl", "client", "github.com/anishathalye/porcupine"),
			"client/a.go:2: cmd/masterctl imports internal/ctl, which imports client, which imports github.com/anishathalye/porcupine"},
		{"the product does not know the laboratory", importing1("internal/app", "lab/cluster"), "internal/app imports lab/cluster"},
		{"the product does not know the laboratory", chained("internal/app", "etcdtest", modulePath+"/lab/cluster"),
			"internal/app imports etcdtest, which imports lab/cluster"},
		{"the client does not contain the server", chained("client", "internal/rpc/rpcerr", "internal/clock", modulePath+"/metadata"),
			"client imports internal/rpc/rpcerr, which imports internal/clock, which imports metadata"},
		{"front ends know no story, only the use cases", chained("internal/rpc", "internal/zslog", modulePath+"/eviction"),
			"internal/rpc imports internal/zslog, which imports eviction"},
		{"etcdtest, lonetest, clitest and waittest are for tests", importing1("journal", "etcdtest"), "journal imports etcdtest"},
		{"product code does not import testing", importing2("client", "testing"), "client imports testing"},

		{"durations come from internal/clock, the wall clock is for people",
			map[string]string{"journal/a.go": "package journal\nimport \"time\"\nvar now = time.Now\n"},
			"journal/a.go:3: uses time.Now"},
		{"a file holds one idea",
			map[string]string{"a/a_test.go": "package a\n" + strings.Repeat("\n", maxFileLines)},
			"a/a_test.go has 501 lines"},
		{"a function fits a page",
			map[string]string{"a/a.go": "package a\n" + function(maxFunctionLines) + function(maxFunctionLines+1)},
			"a/a.go:62: f has 61 lines"},
		{"a function fits a page",
			map[string]string{"a/a_test.go": "package a\n" + function(maxTestFunctionLines+1)},
			"f has 121 lines"},
	}
}

// importing1 is a package that imports another one of this module, and
// importing2 one of somebody else's.
func importing1(pkg, what string) map[string]string { return importing2(pkg, modulePath+"/"+what) }

func importing2(pkg, what string) map[string]string { return chained(pkg, what) }

// chained is packages of which each imports the next one. The last one is an
// import path as it stands in a file, the others are folders.
func chained(packages ...string) map[string]string {
	files := make(map[string]string)
	for i, pkg := range packages[:len(packages)-1] {
		what := packages[i+1]
		if i < len(packages)-2 {
			what = modulePath + "/" + what
		}
		files[pkg+"/a.go"] = "package a\nimport _ \"" + what + "\"\n"
	}
	return files
}

// function is a function of so many lines.
func function(lines int) string {
	return "func f() {" + strings.Repeat("\n", lines-1) + "}\n"
}

// innocent is what all rules must let pass.
var innocent = fstest.MapFS{
	"metadata/a.go": {Data: []byte("// Package metadata is fine.\npackage metadata\nimport (\n\t\"time\"\n\t\"" + modulePath + "/segment\"\n)\nvar d time.Duration\nvar s segment.Name\n")},
	"metadata/a_test.go": {Data: []byte("package metadata_test\nimport (\n\t\"os\"\n\t\"testing\"\n\t\"time\"\n\t\"" + modulePath + "/etcdtest\"\n)\n" +
		"func f(t *testing.T) { go f(t); _, _ = os.Args, time.Now(); etcdtest.Start(t) }\n")},
	"journal/a.go":                    {Data: []byte("// Package journal is fine.\npackage journal\nimport \"" + modulePath + "/journal/record\"\nfunc f(time record.Clock) { time.Now() }\n")},
	"journal/record/a.go":             {Data: []byte("// Package record is fine.\npackage record\n")},
	"internal/clock/a.go":             {Data: []byte("// Package clock is fine.\npackage clock\nimport \"time\"\nvar Now = time.Now\n")},
	"api/understudy/v1/a.pb.go":       {Data: []byte("// Code generated by protoc-gen-go. DO NOT EDIT.\npackage v1\n" + strings.Repeat("\n", maxFileLines) + function(maxTestFunctionLines+1))},
	"cmd/master/main.go":              {Data: []byte("// Master serves.\npackage main\nimport _ \"" + modulePath + "/internal/app\"\n" + function(maxFunctionLines))},
	"tools/go.mod":                    {Data: []byte("module tools\n")},
	"tools/a.go":                      {Data: []byte("package another_module\n")},
	"internal/rpc/a.go":               {Data: []byte("// Package rpc is fine.\npackage rpc\nimport _ \"" + modulePath + "/internal/service\"\n")},
	"internal/service/a.go":           {Data: []byte("// Package service is fine.\npackage service\nimport _ \"" + modulePath + "/deleteevents\"\n")},
	"deleteevents/a.go":               {Data: []byte("// Package deleteevents is fine.\npackage deleteevents\n")},
	"cmd/lab/main.go":                 {Data: []byte("// Lab breaks things.\npackage main\nimport _ \"" + modulePath + "/lab/command\"\n")},
	"lab/command/a.go":                {Data: []byte("// Package command is fine.\npackage command\nimport _ \"go.etcd.io/etcd/server/v3/embed\"\n")},
	"metadata/testdata/not_parsed.go": {Data: []byte("not Go\n")},
}

func TestEveryRuleBites(t *testing.T) {
	byName := make(map[string]rule)
	for _, r := range rules() {
		byName[r.name] = r
	}
	bitten := make(map[string]bool)
	for _, s := range samples() {
		bitten[s.rule] = true
		r, ok := byName[s.rule]
		if !ok {
			t.Errorf("a sample: got one for the rule %q, want one for a rule that exists", s.rule)
			continue
		}
		found := r.check(parse(t, s.files))
		if len(found) != 1 || !strings.Contains(found[0].text, s.want) {
			t.Errorf("%s: found %v, want one place: %s", s.rule, found, s.want)
		}
	}
	for name := range byName {
		if !bitten[name] {
			t.Errorf("rule %q: got no sample that breaks it, want one", name)
		}
	}
}

func TestNoRuleBitesTheInnocent(t *testing.T) {
	m, err := load(innocent)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules() {
		for _, f := range r.check(m) {
			t.Errorf("rule %q on sources that break none: got %s, want nothing", r.name, f.text)
		}
	}
}

func parse(t *testing.T, files map[string]string) *module {
	t.Helper()
	root := make(fstest.MapFS)
	for path, src := range files {
		root[path] = &fstest.MapFile{Data: []byte(src)}
	}
	m, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
