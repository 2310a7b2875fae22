package observers

import (
	"cmp"
	"context"
	"log/slog"
)

type loggerKey struct{}

// WithLogger returns a context for work of the program outside of the runs of a controller.
func WithLogger(ctx context.Context, logger *slog.Logger) context.Context {
	return context.WithValue(ctx, loggerKey{}, logger)
}

// Logger returns the logger of WithLogger, or slog.Default().
func Logger(ctx context.Context) *slog.Logger {
	logger, _ := ctx.Value(loggerKey{}).(*slog.Logger)
	return cmp.Or(logger, slog.Default())
}
