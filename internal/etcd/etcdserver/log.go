package etcdserver

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/rs/zerolog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// noise lists what etcd prints on every start although nothing is wrong: the
// first two ask for settings that make no sense for an etcd inside another
// program, the others come while a new directory has no committed state yet.
var noise = []struct{ message, cause string }{
	{"Running http and grpc server on single port. This is not recommended for production.", ""},
	{"simple token is not cryptographically signed", ""},
	{"Failed to detect schema version", "missing term information"},
	{"failed to update storage version", "missing term information"},
}

// zapLogger returns a logger for etcd that hands warnings and worse to log,
// until muted is set.
//
// etcd calls Fatal on damaged data, which would end the program without a
// word to its caller. Here a Fatal panics instead: during the start it becomes
// an error, later it stops the program with a trace.
func zapLogger(log zerolog.Logger, muted *atomic.Bool) *zap.Logger {
	return zap.New(&zerologCore{log: log, muted: muted}, zap.WithFatalHook(zapcore.WriteThenPanic))
}

// zerologCore is a zapcore.Core that writes to a zerolog.Logger.
type zerologCore struct {
	log    zerolog.Logger
	muted  *atomic.Bool
	fields []zapcore.Field // from With
}

// Enabled reports whether entries of this level are written.
func (c *zerologCore) Enabled(level zapcore.Level) bool {
	return level >= zapcore.WarnLevel && !c.muted.Load()
}

// With returns a core that adds fields to every entry.
func (c *zerologCore) With(fields []zapcore.Field) zapcore.Core {
	return &zerologCore{log: c.log, muted: c.muted, fields: slices.Concat(c.fields, fields)}
}

// Check adds the core to a checked entry that it wants to write.
func (c *zerologCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) {
		return checked
	}
	return checked.AddCore(e, c)
}

// Write writes one entry.
func (c *zerologCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range slices.Concat(c.fields, fields) {
		f.AddTo(enc)
	}
	if isNoise(e.Message, enc.Fields["error"]) {
		return nil
	}
	// WithLevel, because zerolog's own Fatal and Panic end the program.
	c.log.WithLevel(zerologLevel(e.Level)).Fields(enc.Fields).Msg(e.Message)
	return nil
}

func isNoise(message string, cause any) bool {
	for _, n := range noise {
		if n.message == message && strings.Contains(fmt.Sprint(cause), n.cause) {
			return true
		}
	}
	return false
}

// Sync does nothing: zerolog does not buffer.
func (c *zerologCore) Sync() error { return nil }

func zerologLevel(l zapcore.Level) zerolog.Level {
	switch {
	case l >= zapcore.FatalLevel:
		return zerolog.FatalLevel
	case l >= zapcore.DPanicLevel:
		return zerolog.PanicLevel
	case l >= zapcore.ErrorLevel:
		return zerolog.ErrorLevel
	default:
		return zerolog.WarnLevel
	}
}

// fatalError turns what etcd panicked with into an error.
func fatalError(dir string, cause any) error {
	return fmt.Errorf("etcd cannot use the data in %s (%v): restore the directory, or move it away to start empty", dir, cause)
}
