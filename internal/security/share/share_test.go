package share

import (
	"net"
	"strings"
	"testing"
)

// One peer gets its part, a few get all but an eighth, and that is for those with few.
func TestBudget(t *testing.T) {
	b := NewBudget(NewRule("clients", "max-clients", 160, 0.5, 5))
	take := func(peer string) (n int64) {
		for {
			taken, _, own := b.Take(peer, 1)
			if !taken {
				return own
			}
		}
	}
	for _, tc := range []struct {
		peer string
		want int64
	}{{"a", 80}, {"b", 60}, {"c", 5}, {"d", 5}, {"e", 5}, {"f", 5}, {"g", 0}} {
		if got := take(tc.peer); got != tc.want {
			t.Errorf("%s got %d, want %d", tc.peer, got, tc.want)
		}
	}
	b.GiveBack("a", 80)
	if got := take("b"); got != 80 {
		t.Errorf("when another has given its part back, b got %d, want 80", got)
	}
	text := b.Refuse("b", 160, 80, 1)
	for _, want := range []string{`1 more clients are too many: "b" has 80 of all 160`, "--max-clients", "--peer-share"} {
		if !strings.Contains(text, want) {
			t.Errorf("a refusal: got %q, want %q in it", text, want)
		}
	}
	for peer, n := range map[string]int64{"b": 80, "c": 5, "d": 5, "e": 5, "f": 5} {
		b.GiveBack(peer, n)
	}
	if !b.Empty() {
		t.Errorf("all is given back: got %d of %v counted, want none", b.all, b.of)
	}
}

// Without a rule there are no bounds.
func TestNoRule(t *testing.T) {
	if text := (Rule{}).Refuse("a", 1<<60, 1<<60, 1<<60); text != "" {
		t.Errorf("got %q, want no refusal", text)
	}
}

// A host of IPv6 has more addresses than can be counted.
func TestHost(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.7:1": "10.0.0.7", "[::ffff:10.0.0.7]:2": "10.0.0.7", "[2001:db8::1]:3": "2001:db8::/64", "[2001:db8::ffff]:4": "2001:db8::/64",
		"[fe80::1%1]:5": "fe80::/64",
	} {
		tcp, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := Host(tcp); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
	if got := Host(&net.UnixAddr{Name: "bufconn"}); got != "bufconn" {
		t.Errorf("got %s, want bufconn", got)
	}
}
