// Package log has the API of Kooper v2's package log, for programs that change only their import path.
package log

import (
	"fmt"
	"log"
	"maps"
)

// KV are attributes of log lines, by name.
type KV map[string]any

// Logger is what a Kooper program logs to.
type Logger interface {
	Infof(format string, args ...any)
	Warningf(format string, args ...any)
	Errorf(format string, args ...any)
	Debugf(format string, args ...any)
	// WithKV returns a Logger that adds kv to each line.
	WithKV(kv KV) Logger
}

// Dummy logs nothing.
const Dummy = dummy(0)

type dummy int

func (dummy) Infof(string, ...any)    {}
func (dummy) Warningf(string, ...any) {}
func (dummy) Errorf(string, ...any)   {}
func (dummy) Debugf(string, ...any)   {}
func (d dummy) WithKV(KV) Logger      { return d }

// NewStd returns a Logger that writes to the default logger of package log: the level, the message and the attributes.
// With debug it also writes the lines of Debugf.
func NewStd(debug bool) Logger { return std{debug, KV{}} }

type std struct {
	debug bool
	kv    KV
}

func (s std) Infof(format string, args ...any)    { s.print("INFO", format, args) }
func (s std) Warningf(format string, args ...any) { s.print("WARN", format, args) }
func (s std) Errorf(format string, args ...any)   { s.print("ERROR", format, args) }

func (s std) Debugf(format string, args ...any) {
	if s.debug {
		s.print("DEBUG", format, args)
	}
}

func (s std) WithKV(kv KV) Logger {
	joined := maps.Clone(s.kv)
	maps.Copy(joined, kv)
	return std{s.debug, joined}
}

func (s std) print(level, format string, args []any) {
	line := fmt.Sprintf("[%s]\t"+format, append([]any{level}, args...)...)
	if len(s.kv) > 0 {
		line += fmt.Sprintf("\t\t%v", map[string]any(s.kv))
	}
	log.Print(line)
}
