// Package testlog has a buffer for the logs of tests: code under test writes to it while the test reads.
package testlog

import (
	"log/slog"
	"strings"
	"sync"
)

// Buffer is an io.Writer for concurrent use. Its zero value is empty.
type Buffer struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns the text that was written since the last Reset.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Len returns the length of String.
func (b *Buffer) Len() int { return len(b.String()) }

// Count returns how often the buffer contains text.
func (b *Buffer) Count(text string) int { return strings.Count(b.String(), text) }

// Reset removes the text.
func (b *Buffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Reset()
}

// Logger returns a logger that writes to the buffer as text.
func (b *Buffer) Logger(options *slog.HandlerOptions) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, options))
}
