package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// printer prints events, one per line. It is safe for concurrent use.
type printer struct {
	// Immutable.
	colours bool
	begin   time.Time

	mu  sync.Mutex
	out io.Writer // guarded by mu
}

// Kinds of events, and their colors on a terminal (ANSI).
const (
	kindStep      = "step"
	kindReconcile = "reconcile"
	kindRound     = "round"
	kindEnded     = "ended"
	kindHealed    = "healed"
	kindProblem   = "problem"
	kindLog       = "log"
)

func colourOf(kind string) string {
	switch kind {
	case kindRound:
		return "\x1b[1m"
	case kindEnded:
		return "\x1b[31m"
	case kindHealed:
		return "\x1b[32m"
	case kindProblem, kindLog:
		return "\x1b[33m"
	case kindReconcile:
		return "\x1b[2m"
	}
	return ""
}

func newPrinter(out io.Writer) *printer {
	s := &printer{out: out, begin: time.Now()}
	if file, ok := out.(*os.File); ok {
		s.colours = term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == ""
	}
	return s
}

// event prints an event: its kind, its subject, and a text.
func (s *printer) event(kind, subject, format string, args ...any) {
	line := fmt.Sprintf("%6.1fs  %-9s  %-26s  %s", time.Since(s.begin).Seconds(), kind, subject,
		fmt.Sprintf(format, args...))
	if colour := colourOf(kind); s.colours && colour != "" {
		line = colour + line + "\x1b[0m"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.out, line)
}

// text prints a line that is not an event.
func (s *printer) text(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// Write implements io.Writer for a log: each write is an event.
func (s *printer) Write(line []byte) (int, error) {
	s.event(kindLog, "", "%s", trimNewline(line))
	return len(line), nil
}

func trimNewline(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		return line[:n-1]
	}
	return line
}

// logger returns a logger for warnings and errors.
func (s *printer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: withoutTime}))
}

func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
