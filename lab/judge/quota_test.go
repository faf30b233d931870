package judge

import "testing"

// Of what a tenant has, the judge counts what surely was in memory at one moment.
func TestQuotas(t *testing.T) {
	two := Rules{Quota: 20, NoEviction: true}
	tell(t, []story{
		{"three reservations at once", two, `
		0-10  c0 put_start other:a/ ok id=1 size=10
		0-10  c1 put_start other:b/ ok id=2 size=10
		0-20  c2 put_start other:c/ ok id=3 size=10`, map[string]int{Q: 1}, "at least 30 bytes, its quota is 20"},
		{"three of the default tenant", two, `
		0-10  c0 put_start a/ ok id=1 size=10
		0-10  c1 put_start b/ ok id=2 size=10
		0-20  c2 put_start c/ ok id=3 size=10`, nil, ""},
		{"no quota", Rules{}, `
		0-10  c0 put_start other:a/ ok id=1 size=30`, nil, ""},
		{"two, and one that was revoked meanwhile", two, `
		0-10  c0 put_start other:a/ ok id=1 size=10
		0-10  c1 put_start other:b/ ok id=2 size=10
		15-25 c0 put_revoke other:a/ ok id=1
		16-20 c2 put_start other:c/ ok id=3 size=10`, nil, ""},
		{"two, and one whose end may have been followed by its eviction", two, `
		0-10  c0 put_start other:a/ ok id=1 size=10
		0-10  c1 put_start other:b/ ok id=2 size=10
		15-16 c0 put_end   other:a/ ok id=1
		17-20 c2 put_start other:c/ ok id=3 size=10`, nil, ""},
		{"two, and one that is leased", two, `
		0-10  c0 put_start other:a/ ok id=1 size=10
		0-10  c1 put_start other:b/ ok id=2 size=10
		15-16 c0 put_end   other:a/ ok id=1
		17-18 c3 get       other:a/ ok id=1 size=10 leased=100
		19-20 c2 put_start other:c/ ok id=3 size=10`, map[string]int{Q: 1}, "0.0200s"},
		{"two, and one whose lease the next primary may not know", two, `
		0-10  c0 put_start other:a/ ok id=1.1 size=10 term=1
		15-16 c0 put_end   other:a/ ok id=1.1 term=1
		17-18 c3 get       other:a/ ok id=1.1 size=10 leased=100 term=1
		30-31 c1 put_start other:b/ ok id=2.1 size=10 term=2
		32-33 c2 put_start other:c/ ok id=2.2 size=10 term=2`, nil, ""},
		{"two, and one whose lease has ended", two, `
		0-10  c0 put_start other:a/ ok id=1 size=10
		0-10  c1 put_start other:b/ ok id=2 size=10
		15-16 c0 put_end   other:a/ ok id=1
		17-18 c3 get       other:a/ ok id=1 size=10 leased=20
		19-20 c2 put_start other:c/ ok id=3 size=10`, nil, ""},
		{"two, and one that is on an SSD alone", two, `
		0-10  c0 put_start other:a/ ok id=1 size=10
		0-10  c1 put_start other:b/ ok id=2 size=10
		15-16 c0 put_end   other:a/ ok id=1
		17-18 c3 get       other:a/ ok id=1 size=10
		19-20 c2 put_start other:c/ ok id=3 size=10`, nil, ""},
		{"two leases of one object", two, `
		0-10  c0 put_start other:a/ ok id=1 size=10
		11-12 c0 put_end   other:a/ ok id=1
		13-14 c3 get       other:a/ ok id=1 size=10 leased=100
		13-15 c4 get       other:a/ ok id=1 size=10 leased=102
		0-10  c1 put_start other:b/ ok id=2 size=10`, nil, ""},
		{"a removal without an answer, which may work at any time", two, `
		0-10  c0 put_start other:a/ ok id=1 size=10
		11-12 c0 put_end   other:a/ ok id=1
		12-13 c4 remove_force other:a/ lost
		14-15 c3 get       other:a/ ok id=1 size=10 leased=100
		0-10  c1 put_start other:b/ ok id=2 size=10
		19-20 c2 put_start other:c/ ok id=3 size=10`, nil, ""},
		{"a removal that was refused", two, `
		0-10  c0 put_start other:a/ ok id=1 size=10
		11-12 c0 put_end   other:a/ ok id=1
		13-14 c3 get       other:a/ ok id=1 size=10 leased=100
		15-16 c4 remove    other:a/ leased
		0-10  c1 put_start other:b/ ok id=2 size=10
		19-20 c2 put_start other:c/ ok id=3 size=10`, map[string]int{Q: 1}, ""},
	})
	lossy := two
	lossy.Losses = []Loss{{From: 0, To: forever}}
	tell(t, []story{{"three, of which a drill may lose some", lossy, `
		0-10  c0 put_start other:a/ ok id=1 size=10
		0-10  c1 put_start other:b/ ok id=2 size=10
		0-20  c2 put_start other:c/ ok id=3 size=10`, nil, ""}})
}
