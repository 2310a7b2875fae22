package usercode

import (
	"errors"
	"fmt"
)

// Mistakes collects the mistakes in a Config, so that one error reports all of them. The zero value is empty.
type Mistakes struct{ errs []error }

// Addf adds a mistake.
func (m *Mistakes) Addf(format string, args ...any) {
	m.errs = append(m.errs, fmt.Errorf(format, args...))
}

// AddIf adds a mistake if isMistake is true.
func (m *Mistakes) AddIf(isMistake bool, format string, args ...any) {
	if isMistake {
		m.Addf(format, args...)
	}
}

// Join adds the errors that are not nil.
func (m *Mistakes) Join(errs ...error) {
	for _, err := range errs {
		if err != nil {
			m.errs = append(m.errs, err)
		}
	}
}

// Err returns an error that joins all mistakes, or nil if there are none.
func (m *Mistakes) Err() error { return errors.Join(m.errs...) }
