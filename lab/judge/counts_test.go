package judge

import "testing"

// What only several keys together show, and counts that cannot be.
func TestCountsThatCannotBe(t *testing.T) {
	tell(t, []story{
		{"a removal by pattern that says 1 and takes 3", keepsAll, `
		0-10  c0 put_start g/a/ ok id=1
		0-10  c1 put_start g/b/ ok id=2
		0-10  c2 put_start g/c/ ok id=3
		12-20 c0 put_end   g/a/ ok id=1
		12-20 c1 put_end   g/b/ ok id=2
		12-20 c2 put_end   g/c/ ok id=3
		30-40 c2 remove_regex g/ ok n=1
		50-51 c0 get       g/a/ missing
		50-51 c0 get       g/b/ missing
		50-51 c1 get       g/c/ missing`, map[string]int{D: 1}, "of 3 keys"},
		{"two removals by pattern that may have shared the work", keepsAll, `
		0-10  c0 put_start g/a/ ok id=1
		0-10  c1 put_start g/b/ ok id=2
		12-20 c0 put_end   g/a/ ok id=1
		12-20 c1 put_end   g/b/ ok id=2
		30-40 c2 remove_regex g/ ok n=1
		30-40 c3 remove_regex g/ ok n=1
		50-51 c0 get       g/a/ missing
		50-51 c0 get       g/b/ missing`, nil, ""},
		{"a removal by pattern that says 5 of one key", keepsAll, `
		0-10  c0 put_start g/a/ ok id=1
		11-12 c0 put_end   g/a/ ok id=1
		20-30 c1 remove_regex g/ ok n=5
		40-41 c1 get       g/a/ ok id=1`, map[string]int{V: 1}, "more than the 1"},
		{"a removal of one key that says 3", keepsAll, `
		0-10  c0 put_start a/ ok id=1
		11-12 c0 put_end   a/ ok id=1
		20-30 c1 remove_regex a/ ok n=3 exact`, map[string]int{V: 1}, "3 removed"},
		{"one id for two keys", keepsAll, `
		0-10  c0 put_start a/ ok id=1
		11-12 c0 put_end   a/ ok id=1
		20-30 c1 put_start b/ ok id=1
		31-32 c1 put_end   b/ ok id=1
		40-41 c1 get       a/ ok id=1
		40-41 c1 get       b/ ok id=1`, map[string]int{X: 1}, "given twice"},
		{"one id twice under a key", keepsAll, `
		0-10  c0 put_start a/ ok id=1
		11-12 c0 put_revoke a/ ok id=1
		20-30 c1 put_start a/ ok id=1`, map[string]int{X: 1}, "given twice"},
	})
}

// A PutEnd that was repeated says of a put that is gone that something has
// removed it.
func TestRepeatedPutEnds(t *testing.T) {
	tell(t, []story{
		{"gone, and nobody removed it", keepsAll, `
		0-10  c0 put_start a/ ok id=1
		30-35 c0 put_end   a/ missing id=1 attempts=2`, map[string]int{D: 1}, "put_end of object 1: OBJECT_NOT_FOUND"},
		{"gone, and pinned", Rules{}, `
		0-10  c0 put_start a/ ok id=1 pinned
		30-35 c0 put_end   a/ missing id=1 attempts=2`, map[string]int{D: 1}, ""},
		{"gone, and a lost put is where it was", keepsAll, `
		0-10  c0 put_start a/ ok id=1
		12-20 c1 put_start a/ lost
		30-35 c0 put_end   a/ missing id=1 attempts=2
		40-41 c2 get       a/ not-ready`, map[string]int{D: 1}, ""},
		{"gone, and perhaps evicted", Rules{}, `
		0-10  c0 put_start a/ ok id=1
		30-35 c0 put_end   a/ missing id=1 attempts=2`, nil, ""},
		{"gone, and perhaps removed by a call without an answer", keepsAll, `
		0-10  c0 put_start a/ ok id=1
		12-13 c1 remove    a/ lost
		30-35 c0 put_end   a/ missing id=1 attempts=2`, nil, ""},
		{"gone after half a minute", keepsAll, `
		0-10        c0 put_start a/ ok id=1
		30010-30020 c0 put_end   a/ missing id=1 attempts=2`, nil, ""},
	})
}
