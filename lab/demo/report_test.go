package demo

import "testing"

// What was evicted by rule is not lost; what is missing without a reason is.
func TestKept(t *testing.T) {
	for _, c := range []struct {
		name    string
		objects Objects
		warm    bool
	}{
		{"nothing was there", Objects{}, true},
		{"all are there", Objects{Old: 1000, New: 1000}, true},
		{"more were put", Objects{Old: 1000, New: 1200}, true},
		{"some are lost", Objects{Old: 1000, New: 980}, false},
		{"a pass of eviction went by", Objects{Old: 1000, New: 950, Evicted: 50}, true},
		{"more is missing than was evicted", Objects{Old: 1000, New: 900, Evicted: 50}, false},
		{"an eviction was not committed", Objects{Old: 950, New: 1000, Evicted: -50}, true},
		{"it began empty", Objects{Old: 1000}, false},
	} {
		report := Report{Objects: c.objects, DigestEqual: true}
		report.judge()
		if report.OK != c.warm || report.Objects.kept() > 100 {
			t.Errorf("%s: %.1f %% kept, warm %v, want %v", c.name, report.Objects.kept(), report.OK, c.warm)
		}
	}
}
