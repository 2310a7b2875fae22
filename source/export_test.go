package source

import (
	"log/slog"

	"github.com/evenkeel-go/evenkeel/controller"
)

// WithLogger makes a source of an informer log to logger.
func WithLogger(s controller.Source, logger *slog.Logger) controller.Source {
	s.(*mapped).logger = logger
	return s
}
