// Package logrus has the API of Kooper v2's package log/logrus.
package logrus

import (
	"github.com/sirupsen/logrus"

	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
)

type logger struct{ *logrus.Entry }

// New returns a log.Logger that writes to l.
func New(l *logrus.Entry) log.Logger { return logger{l} }

// WithKV implements log.Logger.
func (l logger) WithKV(kv log.KV) log.Logger { return logger{l.WithFields(logrus.Fields(kv))} }
