package ctl

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// A witness is shown, and is neither a node that cannot take over nor one of another version
// in silence.
func TestWitnessIsShown(t *testing.T) {
	all := nodes{{id: "a", address: "a:1", status: &pb.StatusResponse{
		Node: &pb.Node{NodeId: "a", Role: pb.Role_ROLE_PRIMARY, Promotable: true, Version: "v2"},
		Journal: &pb.JournalStatus{EtcdMembers: []*pb.EtcdMember{
			{Name: "a", Alive: true},
			{Name: "w", Alive: true, Witness: &pb.Witness{HttpAddress: "w:9003", Version: "v1", EtcdBytes: 90, EtcdQuotaBytes: 100}},
		}},
	}}}
	s := statusOf("c", all)
	if err := s.verdict(nil); err != nil {
		t.Errorf("status with a witness: got %v, want that all is well", err)
	}
	var out bytes.Buffer
	statusTable(&out, &s)
	if !strings.Contains(out.String(), "w:9003 (HTTP)") || !strings.Contains(out.String(), "never: it votes in etcd") {
		t.Errorf("status with a witness: got\n%s\nwant its HTTP address, and that it never takes over", out.String())
	}
	d := &diagnosis{}
	d.checkNodes(all)
	said := map[string]string{}
	for _, f := range d.Findings {
		said[f.Check] = f.Verdict + " " + f.Text
	}
	for check, want := range map[string]string{
		"witness":    "ok w runs a member of etcd, and holds no metadata",
		"etcd space": "warn etcd of w: 90 B of a quota of 100 B are used",
		"versions":   "warn the nodes have different ones: v1, v2",
	} {
		if said[check] != want {
			t.Errorf("doctor says of %s: %q, want %q", check, said[check], want)
		}
	}
}

// The elected node is fenced: nobody could take over from it.
func TestFencedNodeIsNoStandby(t *testing.T) {
	all := nodes{{id: "a", address: "a:1", status: &pb.StatusResponse{
		Node: &pb.Node{NodeId: "a", Role: pb.Role_ROLE_FENCED, Promotable: true}, Journal: &pb.JournalStatus{},
	}}}
	s := statusOf("c", all)
	var out bytes.Buffer
	if statusTable(&out, &s); !strings.Contains(out.String(), "is elected, and does not serve") {
		t.Errorf("status of a fenced node: got\n%s\nwant that it is elected and does not serve: nobody could take over from it", out.String())
	}
	d := &diagnosis{}
	d.checkNodes(all)
	for _, f := range d.Findings {
		if f.Check == "standbys" && f.Verdict != warns {
			t.Errorf("doctor on standbys: got %+v, want a warning: the elected node is none", f)
		}
	}
}

// Doctor calls a witness at the address that it advertises: nobody else does.
func TestDoctorCallsWitnesses(t *testing.T) {
	answer := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/readyz?role=witness" {
			t.Errorf("doctor asks a witness: got %s, want /readyz?role=witness", r.URL)
		}
		w.WriteHeader(answer)
		_, _ = w.Write([]byte("its member of etcd knows no leader\n"))
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	asked := func(address string) finding {
		t.Helper()
		d := &diagnosis{}
		d.checkWitnesses(t.Context(), nodes{{id: "a", as: &caller{}, status: &pb.StatusResponse{Journal: &pb.JournalStatus{
			EtcdMembers: []*pb.EtcdMember{{Name: "a"}, {Name: "w", Witness: &pb.Witness{HttpAddress: address}}},
		}}}})
		if len(d.Findings) != 1 {
			t.Fatalf("got %+v, want one finding", d.Findings)
		}
		return d.Findings[0]
	}
	if f := asked(address); f.Check != "http" || f.Verdict != fine {
		t.Errorf("doctor on a witness that is well: got %+v, want http, fine", f)
	}
	answer = http.StatusServiceUnavailable
	if f := asked(address); f.Check != "witness" || f.Verdict != bad || f.Text != "w says: its member of etcd knows no leader" {
		t.Errorf("doctor on a witness without a leader: got %+v, want what it says, as bad", f)
	}
	dead := deadAddress(t)
	if f := asked(dead); f.Check != "http" || f.Verdict != bad || f.Text != "w does not answer over HTTP at "+dead+": connection refused" {
		t.Errorf("doctor on a witness that is away: got %+v, want connection refused at %s, as bad", f, dead)
	}
}
