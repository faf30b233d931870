package access

import (
	"bytes"
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
