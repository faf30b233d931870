package archtest

// The layers of the module, from docs/architecture.md. Patterns may name
// packages that do not exist yet.
var (
	pure      = []string{"segment/...", "metadata/..."}
	features  = []string{"journal/...", "leasesync/...", "deleteevents/...", "eviction/...", "promote/..."}
	frontEnds = []string{"internal/rpc/...", "internal/mooncake/mooncakeserver/...", "internal/httpapi/..."}
	everyone  = []string{"..."}
	// The laboratory is not part of the product, nor are helpers of tests.
	product = []string{"...", "!lab/...", "!cmd/lab", "!etcdtest/..."}
)

// Limits of length, in lines. A test is often one long table.
const (
	maxFileLines         = 500
	maxFunctionLines     = 60
	maxTestFunctionLines = 120
)

// A rule is one sentence of the architecture. Where it must bend, allow names
// the place (the finding's subject) and says why; an allowance that excuses
// nothing is an error, so that the list stays short.
type rule struct {
	name  string
	check check
	allow map[string]string
}

func rules() []rule {
	return []rule{
		{name: "every package says what it is for", check: packageComments},

		{name: "the vocabulary of errors knows nothing of ours",
			check: mayImportOurs([]string{"errs/..."})},
		{name: "the pure core knows only itself and pure helpers",
			check: mayImportOurs(pure, "errs", "segment", "metadata", "metadata/binenc", "internal/ordered")},
		{name: "the allocator knows nothing of objects",
			check: mustNotImport([]string{"segment/..."}, "metadata/...")},
		{name: "the pure core does no I/O, logs nothing and has no contexts",
			check: mustNotImport(pure, "context", "log/...", "net/...", "os/...", "testing/...",
				"github.com/rs/zerolog/...", "go.etcd.io/...", "google.golang.org/grpc/..."),
			allow: map[string]string{
				"errs -> context":                      "the kind of an error that an ended context caused",
				"errs -> google.golang.org/grpc/codes": "names of numbers",
			}},
		{name: "the pure core starts no goroutines",
			check: noGoroutines(pure)},
		{name: "stories are loops that somebody else starts: internal/app, and promote for what lives as long as a term",
			check: noGoroutines([]string{"leasesync/...", "deleteevents/...", "eviction/...", "journal/..."}),
			allow: map[string]string{
				"journal/writer.go":  "a panic that no caller recovers from, which ends the process",
				"journal/etcdlog.go": "the copies of a commit's transaction that are under way beside each other; they end with the call",
			}},
		{name: "a use case runs on the goroutine of its call",
			check: noGoroutines([]string{"internal/service/..."}),
			allow: map[string]string{
				"internal/service/segments.go": "a mount goes on to its end when its caller has gone",
			}},
		{name: "the pure core has no clock: time is an argument",
			check: noTime(pure, nil, "Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer")},

		{name: "features know neither the wiring nor what is in front of them",
			check: mustNotImport(features, layers([]string{"internal/app/...", "internal/service/...", "cmd/..."}, frontEnds)...)},
		{name: "a story uses those that come before it only: leases, evictions, takeovers",
			check: mustNotImport([]string{"leasesync/..."}, "deleteevents/...", "eviction/...", "promote/...")},
		{name: "evictions know nothing of deletions and takeovers",
			check: mustNotImport([]string{"eviction/..."}, "deleteevents/...", "promote/...")},
		{name: "deletions know no other story",
			check: mustNotImport([]string{"deleteevents/..."}, "leasesync/...", "eviction/...", "promote/...")},
		{name: "takeovers know nothing of deletions",
			check: mustNotImport([]string{"promote/..."}, "deleteevents/...")},
		{name: "the journal does not know what is written in it",
			check: mustNotImport([]string{"journal/..."}, "leasesync/...", "deleteevents/...", "eviction/...", "promote/...")},
		{name: "the use cases do not know how they are called",
			check: mustNotImport([]string{"internal/service/..."}, layers([]string{"internal/app/...", "cmd/..."}, frontEnds)...)},
		{name: "front ends know no story, only the use cases",
			check: mustNotImportBut(frontEnds, []string{"internal/service"},
				"internal/app/...", "cmd/...", "leasesync/...", "deleteevents/...", "eviction/...", "promote/...")},
		{name: "programs are flags and signals",
			check: mayName([]string{"cmd/..."}, "internal/app", "internal/cli", "internal/config", "internal/ctl", "lab/cluster", "lab/command")},
		{name: "what an operator installs has no etcd server, no checker and no laboratory",
			check: mustNotImport([]string{"cmd/masterctl"}, "github.com/rs/zerolog/...", "go.etcd.io/etcd/server/...", "github.com/anishathalye/porcupine/...", "lab/...")},
		{name: "the product does not know the laboratory",
			check: mustNotImport(product, "lab/...")},
		{name: "nothing imports a program",
			check: mustNotImport(everyone, "cmd/...")},
		{name: "the API is a contract, without code of ours",
			check: mayImportOurs([]string{"api/..."}, "api/...")},
		{name: "the client does not contain the server",
			check: mayImportOurs([]string{"client/..."}, "api/...", "errs", "internal/clock", "internal/etcd/etcdclient", "internal/files", "internal/rpc/rpcerr", "internal/security/certs")},
		{name: "the embedded etcd knows nothing of ours",
			check: mayImportOurs([]string{"internal/etcd/etcdserver/..."})},

		{name: "etcdtest, lonetest, clitest and waittest are for tests",
			check: mustNotImport(everyone, "etcdtest/...", "lab/lonetest/...", "lab/clitest/...", "lab/waittest/..."),
			allow: map[string]string{
				"lab/clitest -> lab/waittest": "it is for tests, too",
			}},
		{name: "product code does not import testing",
			check: mustNotImport(everyone, "testing/..."),
			allow: map[string]string{
				"etcdtest -> testing":     "it is for tests: its functions take the test that they fail",
				"lab/clitest -> testing":  "it is for tests: its functions take the test that they fail",
				"lab/lonetest -> testing": "it is for tests: its functions take the test that they fail",
				"lab/waittest -> testing": "it is for tests: its function takes the test that it fails",
			}},

		{name: "durations come from internal/clock, the wall clock is for people",
			check: noTime(everyone, []string{"internal/clock"}, "Now", "Since", "Until"),
			allow: map[string]string{}},

		{name: "a file holds one idea", check: fileLength(maxFileLines)},
		{name: "a function fits a page", check: functionLength(maxFunctionLines, maxTestFunctionLines),
			allow: map[string]string{
				"lab/drill/controls.go:Controls":                        "a table, a line a control",
				"internal/mooncake/mooncakeserver/handlers.go:newTable": "a table, a line a call",
			}},
	}
}

// layers joins lists of patterns.
func layers(lists ...[]string) []string {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}
