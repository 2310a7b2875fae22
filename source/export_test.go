package source

import (
	"log/slog"

	"github.com/evenkeel-go/evenkeel/controller"
)

// WithLogger makes a source log to logger instead of its controller's logger.
func WithLogger(s controller.Source, logger *slog.Logger) controller.Source {
	return logging{s, logger}
}

type logging struct {
	controller.Source
	logger *slog.Logger
}

// Prepare implements controller.Source.
func (l logging) Prepare(target controller.Target) (controller.PreparedSource, error) {
	target.Logger = l.logger
	return l.Source.Prepare(target)
}
