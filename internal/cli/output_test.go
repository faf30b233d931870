package cli

import (
	"testing"
	"time"
)

func TestDaysAndCounts(t *testing.T) {
	for d, want := range map[time.Duration]string{
		365 * 24 * time.Hour: "365 days", 24 * time.Hour: "1 day", 36 * time.Hour: "36h0m0s", time.Minute: "1m0s", 0: "0s",
	} {
		if got := Days(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
	if got := Things(1, "client") + ", " + Things(0, "client"); got != "1 client, 0 clients" {
		t.Errorf("got %q, want a plural for all but one", got)
	}
}
