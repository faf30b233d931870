package etcdserver

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// noise lists what etcd prints on every start although nothing is wrong: the
// first two ask for settings that make no sense for an etcd inside another
// program, the next come while a new directory has no committed state yet, the
// last while a member waits for its vote.
var noise = []noiseLine{
	{"Running http and grpc server on single port. This is not recommended for production.", ""},
	{"simple token is not cryptographically signed", ""},
	{"Failed to detect schema version", "missing term information"},
	{"failed to update storage version", "missing term information"},
	{"rejecting promote learner: learner is not ready", ""}, // it asks until it is
	{"failed to promote a member", "in sync with leader"},
}

type noiseLine struct{ message, cause string }

// repeats bounds how often a message is logged each second. A restarted etcd that
// has much to apply prints one and the same a hundred times in a moment.
const repeats = 3

// zapLogger returns a logger for etcd that hands warnings and worse to log,
// until muted is set, and of equal ones a few each second.
//
// etcd calls Fatal on damaged data, which would end the program without a
// word to its caller. Here a Fatal panics instead: during the start it becomes
// an error, later it stops the program with a trace. stale is called in place of raft's
// panic about an old copy of a member's data, and ends the goroutine that found it.
func zapLogger(log zerolog.Logger, muted *atomic.Bool, stale func(found string)) *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		MessageKey: zerolog.MessageFieldName, LevelKey: zerolog.LevelFieldName, EncodeLevel: zapcore.LowercaseLevelEncoder,
	})
	wanted := zap.LevelEnablerFunc(func(l zapcore.Level) bool { return l >= zapcore.WarnLevel && !muted.Load() })
	core := zapcore.NewSamplerWithOptions(zapcore.NewCore(encoder, zapcore.AddSync(lines{log}), wanted), time.Second, repeats, 0)
	return zap.New(core, zap.WithFatalHook(zapcore.WriteThenPanic), zap.WithPanicHook(panicHook{stale}))
}

// lostEntries begins what raft panics with if the leader knows of entries that this member has
// had and does not have any more.
const lostEntries = "tocommit("

type panicHook struct{ stale func(found string) }

func (h panicHook) OnWrite(e *zapcore.CheckedEntry, _ []zapcore.Field) {
	if !strings.HasPrefix(e.Message, lostEntries) {
		panic(e.Message)
	}
	h.stale(e.Message)
	runtime.Goexit()
}

// lines takes etcd's log as lines of JSON.
type lines struct{ log zerolog.Logger }

func (l lines) Write(line []byte) (int, error) {
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		return 0, err
	}
	message, level := fmt.Sprint(fields[zerolog.MessageFieldName]), fmt.Sprint(fields[zerolog.LevelFieldName])
	cause := fmt.Sprint(fields["error"])
	if slices.ContainsFunc(noise, func(n noiseLine) bool { return n.message == message && strings.Contains(cause, n.cause) }) {
		return len(line), nil
	}
	severity, err := zerolog.ParseLevel(level)
	if err != nil {
		severity = zerolog.PanicLevel // dpanic, which zerolog does not have
	}
	delete(fields, zerolog.MessageFieldName)
	delete(fields, zerolog.LevelFieldName)
	// WithLevel, because zerolog's own Fatal and Panic end the program.
	l.log.WithLevel(severity).Fields(fields).Msg(message)
	return len(line), nil
}

// fatalError turns what etcd panicked with into an error.
func fatalError(dir string, cause any) error {
	return fmt.Errorf("etcd cannot use the data in %s (%v): restore the directory, or move it away to start empty", dir, cause)
}
