package client

import (
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Option changes how a request is made. Each function of this package says which it takes, and
// refuses the others.
type Option func(*settings)

// Unchanged demands that the object has still the resourceVersion which the caller's has: that
// the cache was not stale at all. Otherwise the answer is ErrChanged.
//
// It is stricter than most acts need, because every heartbeat in a status changes the
// resourceVersion; a check of what matters in the live object disturbs less.
func Unchanged() Option {
	return func(s *settings) { s.unchanged = true; s.given = append(s.given, "Unchanged") }
}

// DryRun asks the API server to check everything, admission included, and to keep nothing.
func DryRun() Option {
	return func(s *settings) { s.dryRun = []string{metav1.DryRunAll}; s.given = append(s.given, "DryRun") }
}

// Propagation says what becomes of the objects that the deleted one owns. Default: as the kind
// does it, in the background for most.
func Propagation(policy metav1.DeletionPropagation) Option {
	return func(s *settings) { s.propagation = &policy; s.given = append(s.given, "Propagation") }
}

// GracePeriod is the time that a Pod is given to end, in whole seconds. Zero kills it, and lets
// another one of its name begin while it may still run. Default: as the Pod says.
func GracePeriod(d time.Duration) Option {
	return func(s *settings) { s.grace = &d; s.given = append(s.given, "GracePeriod") }
}

// settings are what options come to.
type settings struct {
	unchanged   bool
	dryRun      []string
	propagation *metav1.DeletionPropagation
	grace       *time.Duration
	given       []string // the options' names
}

func newSettings(options []Option) settings {
	var s settings
	for _, option := range options {
		option(&s)
	}
	return s
}

// only refuses options that have no meaning for what is to be done: what was asked for must
// not be left out in silence.
func (s settings) only(names ...string) error {
	var errs []error
	for _, name := range s.given {
		if !slices.Contains(names, name) {
			errs = append(errs, fmt.Errorf("option %s has no meaning here: possible are %q", name, names))
		}
	}
	if s.grace != nil && (*s.grace < 0 || *s.grace%time.Second != 0) {
		errs = append(errs, fmt.Errorf("option GracePeriod is %s: it counts in whole seconds, from 0", *s.grace))
	}
	return errors.Join(errs...)
}
