package access

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// The first line of the next minute says how many are missing.
func TestFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		few := NewFewLines(zerolog.New(&log), 2)
		for range 5 {
			few.Warn().Msg("a")
		}
		time.Sleep(time.Minute)
		few.Info().Msg("b")
		few.Warn().Msg("c")
		const want = `{"level":"warn","message":"a"}
{"level":"warn","message":"a"}
{"level":"info","left_out":3,"message":"b"}
{"level":"warn","message":"c"}
`
		if log.String() != want {
			t.Errorf("got\n%swant\n%s", log.String(), want)
		}
	})
}

// One peer leaves lines to others, and two leave some to those with few.
func TestLinesOfPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		few := NewFewLines(zerolog.New(io.Discard), 100)
		lines := func(peer string) (n int) {
			for few.InfoOf(peer) != nil {
				n++
			}
			return n
		}
		want := func(peer string, want int) {
			t.Helper()
			if got := lines(peer); got != want {
				t.Errorf("%s: got %d lines, want %d", peer, got, want)
			}
		}
		want("a", 50)
		want("b", 38)
		want("c", 6)
		want("d", 6)
		want("e", 0)
		time.Sleep(time.Minute)
		want("b", 50)
	})
}
