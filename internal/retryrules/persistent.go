package retryrules

import (
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/retry"
)

// Persistent reports whether err lasts until the object, another object or the program changes. It is true
// for errors of the classes retry.Invalid and retry.Terminal, and for an error that has a method Persistent() bool
// which returns true, or wraps such an error. A controller may still retry such an error, because it cannot detect
// every change.
//
// In the conditions of an object, a persistent error means Stalled, and any other error Reconciling.
func Persistent(err error) bool {
	if class := retry.Classify(err); class == retry.Invalid || class == retry.Terminal {
		return true
	}
	persistent := false
	usercode.VisitErrors(err, func(err error) {
		if e, ok := err.(interface{ Persistent() bool }); ok {
			persistent = persistent || e.Persistent()
		}
	})
	return persistent
}
