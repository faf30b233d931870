package zslog_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/internal/zslog"
)

type stamp struct{}

func (stamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, "now")
}

func TestLinesHaveTheTimeOnce(t *testing.T) {
	var out bytes.Buffer
	log := zslog.New(zerolog.New(&out).Level(zerolog.InfoLevel).Hook(stamp{}))
	log.Debug("too much")
	log.With("a", 1).Warn("text", "took", 2*time.Millisecond, "error", errors.New("bad"))
	const want = `{"level":"warn","a":1,"took":2,"error":"bad","time":"now","message":"text"}`
	if got := strings.TrimSpace(out.String()); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
