package etcdserver

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/zap"
)

func TestLogsAreReducedAndRouted(t *testing.T) {
	var out bytes.Buffer
	var muted atomic.Bool
	log := zapLogger(zerolog.New(&out), &muted, nil).With(zap.String("member", "a"))

	log.Info("not of interest")
	log.Warn("simple token is not cryptographically signed")
	log.Warn("Failed to detect schema version", zap.Error(errors.New("missing term information")))
	if out.Len() > 0 {
		t.Errorf("noise of etcd: got it logged, want nothing: %s", out.String())
	}

	log.Warn("slow", zap.Int("ms", 7))
	log.Error("Failed to detect schema version", zap.Error(errors.New("disk on fire")))
	want := `{"level":"warn","member":"a","ms":7,"message":"slow"}
{"level":"error","error":"disk on fire","member":"a","message":"Failed to detect schema version"}
`
	if got := out.String(); got != want {
		t.Errorf("logged:\n%swant:\n%s", got, want)
	}

	out.Reset()
	for range 100 {
		log.Warn("failed to publish")
	}
	if got := strings.Count(out.String(), "\n"); got < 1 || got > 2*repeats { // a second may end in between
		t.Errorf("100 equal warnings: got %d lines, want %d", got, repeats)
	}

	out.Reset()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Fatal: got a return, want a panic: nothing goes on after it")
			}
		}()
		log.Fatal("damaged")
	}()
	if !strings.Contains(out.String(), `"level":"fatal"`) {
		t.Errorf("Fatal logged %s, want level fatal", out.String())
	}

	out.Reset()
	muted.Store(true)
	log.Error("while closing")
	if out.Len() > 0 {
		t.Errorf("a muted log: got %s, want nothing", out.String())
	}
}
