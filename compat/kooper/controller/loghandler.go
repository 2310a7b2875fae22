package controller

import (
	"context"
	"log/slog"

	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
)

// logHandler writes the log lines of the engine to a Kooper Logger.
type logHandler struct{ logger log.Logger }

// Enabled implements slog.Handler. The Logger decides, but nothing is formatted for log.Dummy.
func (h logHandler) Enabled(context.Context, slog.Level) bool {
	return h.logger != log.Logger(log.Dummy)
}

// Handle implements slog.Handler.
func (h logHandler) Handle(_ context.Context, record slog.Record) error {
	kv := log.KV{}
	record.Attrs(func(attr slog.Attr) bool {
		add(kv, "", attr)
		return true
	})
	logger := h.logger
	if len(kv) > 0 {
		logger = logger.WithKV(kv)
	}
	write := logger.Debugf
	switch {
	case record.Level >= slog.LevelError:
		write = logger.Errorf
	case record.Level >= slog.LevelWarn:
		write = logger.Warningf
	case record.Level >= slog.LevelInfo:
		write = logger.Infof
	}
	write("%s", record.Message)
	return nil
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	kv := log.KV{}
	for _, attr := range attrs {
		add(kv, "", attr)
	}
	return logHandler{h.logger.WithKV(kv)}
}

// add adds an attribute to kv. Those of a group have its name before theirs: "run.id". The key of an object has Kooper's
// name.
func add(kv log.KV, group string, attr slog.Attr) {
	value := attr.Value.Resolve()
	if value.Kind() != slog.KindGroup {
		name := group + attr.Key
		if name == "run.key" || name == "key" {
			name = "object-key"
		}
		kv[name] = value.Any()
		return
	}
	for _, member := range value.Group() {
		add(kv, group+attr.Key+".", member)
	}
}

// WithGroup implements slog.Handler. The engine uses no groups.
func (h logHandler) WithGroup(string) slog.Handler { return h }
