package ctl

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
)

// diagnosed returns what the doctor says, and what of it belongs to a check.
func diagnosed(t *testing.T, args ...string) (d diagnosis, of func(check string) []finding, o clitest.Outcome) {
	t.Helper()
	o = run(t, append([]string{"doctor", "-o", "json"}, args...)...)
	d = clitest.Decode[diagnosis](t, o)
	return d, func(check string) (list []finding) {
		for _, x := range d.Findings {
			if x.Check == check {
				list = append(list, x)
			}
		}
		return list
	}, o
}

// testDoctor looks at a cluster that is well, apart from what it has no control over,
// such as how fast etcd is here.
func testDoctor(t *testing.T) {
	var d diagnosis
	var of func(check string) []finding
	var o clitest.Outcome
	wrong := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(wrong)
		}
	})
	clitest.Eventually(t, "all is well", func() bool { // a busy machine may make the standby late
		d, of, o = diagnosed(t)
		wrong = ""
		for check, count := range map[string]int{"nodes": 1, "primary": 1, "standbys": 1, "versions": 1, "http": 2, "settings": 2, "etcd space": 1, "etcd version": 1, "etcd alarms": 1} {
			list := of(check)
			if len(list) != count || slices.ContainsFunc(list, func(x finding) bool { return x.Verdict != fine || x.Help != "" }) {
				wrong += fmt.Sprintf("%s: got %+v, want %d that are ok\n", check, list, count)
			}
		}
		return wrong == ""
	})
	for _, check := range []string{"state files", "memory", "commits", "etcd latency", "keepalives"} {
		if len(of(check)) == 0 {
			t.Errorf("doctor: got nothing on %s, want a finding", check)
		}
	}
	unwell := slices.ContainsFunc(d.Findings, func(x finding) bool { return x.Verdict == warns || x.Verdict == bad })
	if !d.Serves || unwell != (o.Status == cli.StatusFailed) {
		t.Errorf("doctor: got exit status %d for %+v, want a primary, and failure if and only if it warns or finds a fault", o.Status, d)
	}
	if o := run(t, "doctor"); !strings.HasPrefix(o.Out, "ok ") || strings.Count(o.Out, "\n") < len(d.Findings)-1 {
		t.Errorf("got\n%s\nwant a line for each check", o.Out)
	}
}

// testWatching lets status and top print more than once.
func testWatching(t *testing.T) {
	if o := whenWell(t, "status", "--watch", "--count=2", "--interval=100ms"); strings.Count(o.Out, "DIGEST") != 2 {
		t.Errorf("status printed\n%s\nwant it twice", o.Out)
	}
	both := json.NewDecoder(strings.NewReader(whenWell(t, "top", "--count=2", "--interval=100ms", "-o", "json").Out))
	var first, second topResult
	if err := both.Decode(&first); err != nil {
		t.Fatal(err)
	}
	if err := both.Decode(&second); err != nil {
		t.Fatal(err)
	}
	if first.Seconds != 0 || second.Seconds < 0.1 || second.NodeID != "a" || second.Clients == 0 || len(second.Status.Nodes) != 2 || first.CommitMS == 0 {
		t.Errorf("got %+v, then %+v; want the figures of a, then rates", first, second)
	}
	whenWell(t, "top", "--count=1").Want(t, cli.StatusOK, "A COMMIT", "CAN TAKE OVER")
}

// whenWell runs a command until it finds that all is well: on a busy machine a standby may
// be late for a moment.
func whenWell(t *testing.T, args ...string) (o clitest.Outcome) {
	t.Helper()
	clitest.Eventually(t, args[0]+" finds that all is well", func() bool {
		o = run(t, args...)
		return o.Status == cli.StatusOK
	})
	return o
}

// Commits are judged by the windows that the journal names.
func TestSlowCommits(t *testing.T) {
	figures := scrape{
		"understudy_serve_window_seconds": 0.6, "understudy_failover_after_seconds": 1,
		"understudy_commit_duration_seconds_count": 1000, "understudy_commit_duration_seconds_sum": 5,
		`understudy_commit_duration_seconds_bucket{le="0.1"}`: 990, `understudy_commit_duration_seconds_bucket{le="0.25"}`: 1000,
		`understudy_commit_duration_seconds_bucket{le="0.5"}`: 1000, `understudy_commit_duration_seconds_bucket{le="+Inf"}`: 1000,
	}
	verdict := func() finding {
		d := &diagnosis{}
		d.checkCommits(figures)
		return d.Findings[0]
	}
	if x := verdict(); x.Verdict != fine || !strings.HasPrefix(x.Text, "5.0 ms on average since its start; the primary answers for 600 ms") {
		t.Errorf("got %+v, want it to be well", x)
	}
	figures[`understudy_commit_duration_seconds_bucket{le="0.25"}`] = 990
	if x := verdict(); x.Verdict != warns || !strings.Contains(x.Text, "1.0 % took longer") || !strings.Contains(x.Help, "--failover-after") {
		t.Errorf("got %+v, want a warning of 1 %%", x)
	}
	figures["understudy_serve_window_seconds"] = 0 // it has begun, or nodes of an older version are registered
	if x := verdict(); x.Verdict != fine || !strings.HasPrefix(x.Text, "5.0 ms on average since its start; not judged") {
		t.Errorf("got %+v while no window is known, want the average alone", x)
	}
	figures["understudy_commit_duration_seconds_count"] = 0
	if x := verdict(); x.Verdict != fine || !strings.Contains(x.Text, "has measured none") {
		t.Errorf("got %+v of a primary that has measured no commit, want that", x)
	}
}

// An outage that is over makes neither the mean nor the verdict bad any more.
func TestCommitsAfterAnOutage(t *testing.T) {
	figures := scrape{
		"understudy_serve_window_seconds": 0.6, "understudy_failover_after_seconds": 1,
		"understudy_commit_duration_seconds_count": 1000, "understudy_commit_duration_seconds_sum": 600, // of ten minutes without etcd
		`understudy_commit_duration_seconds_bucket{le="0.25"}`: 980, `understudy_commit_duration_seconds_bucket{le="+Inf"}`: 1000,
		"understudy_recent_commits": 200, "understudy_recent_commit_mean_seconds": 0.005, "understudy_recent_slow_commits": 0,
	}
	verdict := func() finding {
		d := &diagnosis{}
		d.checkCommits(figures)
		return d.Findings[0]
	}
	if x := verdict(); x.Verdict != fine || !strings.HasPrefix(x.Text, "5.0 ms on average in the last 10 minutes; ") {
		t.Errorf("got %+v, want it to be well", x)
	}
	figures["understudy_recent_slow_commits"] = 1
	if x := verdict(); x.Verdict != warns || !strings.Contains(x.Text, "0.5 % took longer") {
		t.Errorf("got %+v while it lasts, want a warning", x)
	}
}

// Memory in quarantine, which nobody can use, is a reason for a warning.
func TestMemoryInQuarantine(t *testing.T) {
	for quarantined, want := range map[uint64]string{0: fine, 200: fine, 300: warns} {
		n := &node{status: &pb.StatusResponse{State: &pb.StateStatus{CapacityBytes: 1000, UsedBytes: 400, QuarantinedBytes: quarantined}}}
		d := &diagnosis{}
		d.checkMemory(nodes{n})
		if x := d.Findings[0]; x.Verdict != want {
			t.Errorf("%d of 1000 bytes in quarantine: got %+v, want %s", quarantined, x, want)
		}
	}
}

// Reads of etcd are slow beside how long a primary may answer after a commit.
func TestLatencyOfEtcd(t *testing.T) {
	keep := limits{600 * time.Millisecond, time.Second}
	for _, c := range []struct {
		keep limits
		took time.Duration
		want string
	}{
		{keep, 150 * time.Millisecond, fine}, {keep, 151 * time.Millisecond, warns}, {keep, 601 * time.Millisecond, bad},
		{limits{120 * time.Millisecond, 200 * time.Millisecond}, 40 * time.Millisecond, warns},
		{limits{6 * time.Second, 10 * time.Second}, 400 * time.Millisecond, fine},
		{limits{}, 100 * time.Millisecond, fine}, {limits{}, 3 * time.Second, warns}, // no node serves
	} {
		d := &diagnosis{}
		d.judgeLatency("reads", c.took, c.keep)
		if x := d.Findings[0]; x.Verdict != c.want || (c.keep.window > 0) != strings.Contains(x.Text, "(W), and is replaced after") {
			t.Errorf("%v with %+v: got %+v, want %s", c.took, c.keep, x, c.want)
		}
	}
}

// What is in quarantine stands apart from what is used, in the table as in JSON. If it is so
// much that doctor warns, status does too.
func TestUsedWithoutQuarantine(t *testing.T) {
	for _, c := range []struct {
		used, quarantined uint64 // of 64 MiB
		table             string
		want              uint64
		warns             bool
	}{
		{64 << 20, 64 << 20, "0.0 % of 64 MiB   64 MiB ", 0, true},
		{32 << 20, 16 << 20, "25.0 % of 64 MiB   16 MiB ", 16 << 20, false},
	} {
		all := nodes{{id: "a", status: &pb.StatusResponse{
			Node:  &pb.Node{NodeId: "a", Role: pb.Role_ROLE_PRIMARY},
			State: &pb.StateStatus{CapacityBytes: 64 << 20, UsedBytes: c.used, QuarantinedBytes: c.quarantined},
		}}}
		s := statusOf("c", all)
		var out strings.Builder
		statusTable(&out, &s)
		if !strings.Contains(out.String(), c.table) {
			t.Errorf("got\n%s\nwant %q", out.String(), c.table)
		}
		if n := s.Nodes[0]; n.Used != c.want || n.Quarantined != c.quarantined {
			t.Errorf("JSON has %d bytes used and %d quarantined, want %d and %d", n.Used, n.Quarantined, c.want, c.quarantined)
		}
		if said := strings.Contains(out.String(), "warning of a: 0 % of 64 MiB are used, and another 100 % are in quarantine; wait for it"); said != c.warns || c.warns != (s.verdict(nil) != nil) {
			t.Errorf("%d MiB in quarantine: status ends with %v, and says\n%s\nwant a warning: %t", c.quarantined>>20, s.verdict(nil), out.String(), c.warns)
		}
		d := &diagnosis{}
		d.checkNodes(all)
		if d.checkMemory(all); strings.Count(fmt.Sprint(d.Findings), "in quarantine") != 1 {
			t.Errorf("doctor on quarantine: got %+v, want it said once", d.Findings)
		}
	}
}

// A rate is what came between two looks at one process.
func TestRates(t *testing.T) {
	before := scrape{"understudy_commit_duration_seconds_count": 10, "understudy_commit_duration_seconds_sum": 1, "master_put_start_requests_total": 5, "total_get_nums_": 100, "valid_get_nums_": 100}
	after := scrape{
		"understudy_commit_duration_seconds_count": 30, "understudy_commit_duration_seconds_sum": 1.2, "master_put_start_requests_total": 9,
		"master_batch_put_start_items_total": 6, "master_batch_put_start_requests_total": 2, "total_get_nums_": 108, "valid_get_nums_": 106, "understudy_exist_misses_total": 4,
		`understudy_delete_events_total{type="REMOVE"}`: 2, "master_active_clients": 3,
	}
	w := &watcher{}
	if r := w.compare("a", 10*time.Second, before); r.Seconds != 0 || r.Puts != 0 || r.HitRate != 100 {
		t.Errorf("the first time: got %+v, want no rates", r)
	}
	r := w.compare("a", 12*time.Second, after)
	want := topResult{NodeID: "a", Seconds: 2, Calls: 3, Puts: 5, Reads: 4, HitRate: 50, Deletes: 1, Commits: 10, CommitMS: r.CommitMS, Clients: 3, asked: true, commits: true}
	if got, _ := json.Marshal(r); !slices.Equal(got, encoded(t, want)) || r.CommitMS < 9.99 || r.CommitMS > 10.01 {
		t.Errorf("got %+v, want %+v", r, want)
	}
	var idle strings.Builder
	same := w.compare("a", 13*time.Second, after)
	same.Status.Leader = &leaderResult{NodeID: "a"}
	same.print(&idle)
	if strings.Contains(idle.String(), " %") || strings.Contains(idle.String(), " ms") {
		t.Errorf("nothing was asked for or committed: got\n%s\nwant no hit rate and no time of a commit", idle.String())
	}
	if r := w.compare("a", 14*time.Second, before); r.Seconds != 0 || r.Puts != 0 {
		t.Errorf("a process that has started again: got %+v, want no rates", r)
	}
	if r := w.compare("b", 15*time.Second, after); r.Seconds != 0 {
		t.Errorf("another node: got %+v, want no rates", r)
	}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// An etcd before 3.5 is a reason for a warning.
func TestOldEtcd(t *testing.T) {
	for version, want := range map[string]string{"3.4.30": warns, "2.3.8": warns, "3.5.0": fine, "3.10.1": fine, "4.0.0": fine} {
		d := &diagnosis{}
		d.checkEtcdVersion(version)
		if x := d.Findings[0]; x.Verdict != want {
			t.Errorf("etcd %s: got %+v, want %s", version, x, want)
		}
	}
}

// A session of which less than half is left was not renewed in time.
func TestKeepalives(t *testing.T) {
	for left, want := range map[int64]string{10: fine, 9: fine, 5: fine, 4: warns, 0: warns, -1: warns} {
		d := &diagnosis{}
		d.judgeKeepalives(left, 10)
		if x := d.Findings[0]; x.Check != "keepalives" || x.Verdict != want || (want == fine) != (x.Help == "") {
			t.Errorf("%d s of 10 s are left: got %+v, want %s", left, x, want)
		}
	}
}

// Each alarm of etcd is bad, and what helps against it is said.
func TestAlarmsOfEtcd(t *testing.T) {
	const space, corrupt = etcdpb.AlarmType_NOSPACE, etcdpb.AlarmType_CORRUPT
	for _, c := range []struct {
		raised  []etcdpb.AlarmType
		verdict string
		help    []string // how it begins, of each finding
	}{
		{nil, fine, []string{""}},
		{[]etcdpb.AlarmType{space}, bad, []string{"nodes that run this etcd, or compact it, make space"}},
		{[]etcdpb.AlarmType{corrupt, space}, bad, []string{"replace the member whose data differ", "nodes that run this etcd"}},
	} {
		d := &diagnosis{}
		var alarms []*etcdpb.AlarmMember
		for _, a := range c.raised {
			alarms = append(alarms, &etcdpb.AlarmMember{MemberID: 0xabc, Alarm: a})
		}
		d.judgeAlarms(alarms)
		if len(d.Findings) != len(c.help) {
			t.Fatalf("%v: got %+v, want %d findings", c.raised, d.Findings, len(c.help))
		}
		for i, x := range d.Findings {
			if x.Check != "etcd alarms" || x.Verdict != c.verdict || !strings.HasPrefix(x.Help, c.help[i]) || (c.verdict == bad) != strings.Contains(x.Text, "of member abc") {
				t.Errorf("%v: got %+v, want it to be %s", c.raised, x, c.verdict)
			}
		}
	}
}

// Where no member of etcd answers masterctl, the nodes say what they heard from them. What
// they do not know is named.
func TestEtcdByNodes(t *testing.T) {
	keep := limits{600 * time.Millisecond, time.Second}
	for name, c := range map[string]struct {
		journal *pb.JournalStatus
		want    map[string]string
	}{
		"well": {&pb.JournalStatus{EtcdVersions: []string{"3.6.1"}, EtcdAnswerUs: 2500, EtcdBytes: 1 << 20, EtcdQuotaBytes: 4 << 20}, map[string]string{
			"etcd version": "ok 3.6.1", "etcd alarms": "ok none", "etcd latency": "ok the members answered the nodes within 2.5 ms",
			"etcd space": "ok as a knows it: 1.0 MiB of a quota of 4.0 MiB", "keepalives": "skip not checked: no member of etcd answers masterctl from here",
		}},
		"full": {&pb.JournalStatus{EtcdVersions: []string{"3.4.1"}, EtcdAlarms: []string{"memberID:7 alarm:NOSPACE"}, EtcdAnswerUs: 700_000}, map[string]string{
			"etcd version": "warn 3.4.1", "etcd alarms": "bad memberID:7 alarm:NOSPACE", "etcd latency": "bad the members", "keepalives": "skip not checked",
		}},
		"of an older version": {&pb.JournalStatus{}, map[string]string{
			"etcd version": "skip not checked: no member", "etcd alarms": "skip not checked: no member", "etcd latency": "skip not checked: no member", "keepalives": "skip not checked",
		}},
	} {
		d, said := &diagnosis{}, map[string]string{}
		d.etcdByNodes(nodes{{id: "a", status: &pb.StatusResponse{Journal: c.journal}}}, keep)
		for _, x := range d.Findings {
			said[x.Check] = x.Verdict + " " + x.Text
		}
		for check, want := range c.want {
			if !strings.HasPrefix(said[check], want) {
				t.Errorf("%s: doctor says of %s: %q, want %q", name, check, said[check], want)
			}
		}
	}
}

// An etcd that has used more than four fifths of its quota is nearly full.
func TestSpaceOfEtcd(t *testing.T) {
	for _, c := range []struct {
		used, quota uint64
		want        string
	}{{800, 1000, fine}, {801, 1000, warns}, {801, 0, fine}} {
		d := &diagnosis{}
		d.checkSpace("e:2379", c.used, c.quota)
		if x := d.Findings[0]; x.Check != "etcd space" || x.Verdict != c.want {
			t.Errorf("%d of %d bytes: got %+v, want %s", c.used, c.quota, x, c.want)
		}
	}
}

// What a node shows of its settings, its state and its state files.
func TestFiguresOfANode(t *testing.T) {
	n := &node{id: "b", status: &pb.StatusResponse{Node: &pb.Node{HttpAddress: "b:9003"}, Journal: &pb.JournalStatus{}}}
	restorable := func(more scrape) scrape {
		more["understudy_state_restorable"] = 1
		return more
	}
	for _, c := range []struct {
		alone                bool // no node serves
		figures              scrape
		check, verdict, text string // empty if nothing is said
	}{
		{false, scrape{}, "settings", fine, "those of b agree"},
		{false, scrape{"understudy_settings_differ": 1}, "settings", warns, "1 of b are not those of the primary"},
		{true, scrape{"understudy_settings_differ": 1}, "settings", "", ""},
		{false, restorable(scrape{"understudy_state_file_age_seconds": 31}), "state files", fine, "from its file, 31 s old"},
		{false, restorable(scrape{"understudy_state_save_failures_total": 1}), "state files", fine, "from its file"}, // it was saved since
		{false, scrape{"understudy_state_save_failures_total": 2}, "state files", warns, "b could not save its state 2 times"},
		{false, scrape{}, "state files", warns, "the journal goes on from no file of b"},
		{false, scrape{}, "state", "", ""},
		{false, scrape{"understudy_digest_mismatches_total": 1}, "state", bad, "not the primary's 1 times"},
		{false, scrape{"understudy_lease_differences_total": 1}, "state", bad, "not the primary's 1 times"},
		{false, scrape{}, "interruptions", "", ""},
		{false, scrape{"understudy_serve_lapses_total": 1}, "interruptions", warns, "answered nobody once since its start"}, // of an older version
		{false, scrape{"understudy_serve_lapses_total": 3, "understudy_recent_serve_lapses": 2}, "interruptions", warns, "answered nobody 2 times in the last 10 minutes"},
		{false, scrape{"understudy_serve_lapses_total": 3, "understudy_recent_serve_lapses": 0}, "interruptions", fine, "none in the last 10 minutes, and 3 since its start"},
		{false, scrape{"understudy_serve_lapses_total": 0, "understudy_recent_serve_lapses": 0}, "interruptions", "", ""},
	} {
		d := &diagnosis{Serves: !c.alone}
		d.checkNode(n, c.figures, nil)
		var x finding
		for _, f := range d.Findings {
			if f.Check == c.check {
				x = f
			}
		}
		if x.Verdict != c.verdict || !strings.Contains(x.Text, c.text) || (x.Verdict == warns || x.Verdict == bad) != (x.Help != "") {
			t.Errorf("%s with %v: got %+v, want %q: %s", c.check, c.figures, x, c.verdict, c.text)
		}
	}
}

// A certificate that expires soon is warned of, from 14 days before on, as the node shows it.
func TestCertificatesThatExpire(t *testing.T) {
	const name, day = `understudy_certificate_expiry_timestamp_seconds{kind="%s"}`, 24 * time.Hour
	now := time.Date(2027, 3, 4, 5, 6, 7, 0, time.UTC)
	n := &node{id: "b"}
	for _, c := range []struct {
		kind          string
		left          time.Duration
		verdict, text string
	}{
		{"node", 15 * day, fine, "b (--tls-cert) is valid until 2027-03-19T05:06:07Z"},
		{"node", 13*day + day/2, warns, "b (--tls-cert) expires in 13.5 days, at 2027-03-17T17:06:07Z"},
		{"etcd", 1 * day, warns, "b (--etcd-cert) expires in 1.0 days"},
		{"node", -1 * day, bad, "b (--tls-cert) has expired, at 2027-03-03"},
	} {
		d := &diagnosis{}
		d.checkCertificates(n, scrape{fmt.Sprintf(name, c.kind): float64(now.Add(c.left).Unix())}, now)
		if len(d.Findings) != 1 {
			t.Fatalf("%s in %v: got %+v, want one finding", c.kind, c.left, d.Findings)
		}
		if x := d.Findings[0]; x.Check != "certificates" || x.Verdict != c.verdict || !strings.Contains(x.Text, c.text) || (x.Verdict == fine) != (x.Help == "") {
			t.Errorf("%s in %v: got %+v, want %s: %s", c.kind, c.left, x, c.verdict, c.text)
		}
	}
	d := &diagnosis{}
	if d.checkCertificates(n, scrape{}, now); len(d.Findings) > 0 {
		t.Errorf("without TLS: got %+v, want nothing", d.Findings)
	}
}
