package client

import (
	"context"
	"log/slog"
	"sync"
)

// maxWarnings is the maximum number of stored texts. Further texts are logged each time.
const maxWarnings = 1000

// warnings logs the warnings of API servers, each text once. It implements rest.WarningHandlerWithContext.
type warnings struct {
	logger *slog.Logger

	mu   sync.Mutex
	seen map[string]bool // guarded by mu
}

func newWarnings(logger *slog.Logger) *warnings {
	return &warnings{logger: logger, seen: map[string]bool{}}
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	const miscellaneous = 299 // the only code that API servers use (RFC 7234, 5.5)
	if code != miscellaneous || text == "" || w.knows(text) {
		return
	}
	w.logger.WarnContext(ctx, "the API server warns", "warning", text)
}

func (w *warnings) knows(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[text] {
		return true
	}
	if len(w.seen) < maxWarnings {
		w.seen[text] = true
	}
	return false
}
