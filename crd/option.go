package crd

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/client"
)

// DefaultTimeout is how long the functions of this package wait.
const DefaultTimeout = time.Minute

const (
	// pollInterval is the time between two questions for the cluster's resources, which cannot be
	// watched. A definition is among them within some 100 ms.
	pollInterval = 100 * time.Millisecond
	// quietTime is how long nothing is logged of a wait, and logInterval how often then.
	quietTime   = 2 * time.Second
	logInterval = 10 * time.Second
)

// Option changes what a function of this package does. Each says which it takes, and refuses
// the others.
type Option func(*settings)

// Timeout bounds the whole call. Default DefaultTimeout, 1 min. To find out what remains of a
// definition that is not gone by then may take another 2 s.
func Timeout(d time.Duration) Option {
	return named("Timeout", func(s *settings) {
		if d <= 0 {
			s.problems = append(s.problems, fmt.Errorf("option Timeout is %s: it has to be positive", d))
		}
		s.timeout = d
	})
}

// Logger receives what is waited for, when it takes more than 2 s. Default: the client's.
func Logger(logger *slog.Logger) Option {
	return named("Logger", func(s *settings) { s.logger = logger })
}

// AllowDataLoss lets a definition change although data may be lost (Lossy). paths are those of
// the Problems that are meant, as in "v1: spec.size"; without paths it is all of them, which
// suits a cluster for development, and no other.
func AllowDataLoss(paths ...string) Option {
	return named("AllowDataLoss", func(s *settings) { s.allow(Lossy, paths) })
}

// AllowNarrowing lets a definition change although objects or requests may be refused that were
// accepted so far (Narrowing). paths are those of the Problems that are meant; without paths it
// is all of them.
func AllowNarrowing(paths ...string) Option {
	return named("AllowNarrowing", func(s *settings) { s.allow(Narrowing, paths) })
}

// WithObjects lets Remove remove a definition together with all objects that it defines.
func WithObjects() Option { return named("WithObjects", func(s *settings) { s.withObjects = true }) }

// settings are what options come to.
type settings struct {
	client      *client.Client // the caller's, without informers
	timeout     time.Duration
	logger      *slog.Logger
	allowed     map[Severity]allowance
	withObjects bool

	given    []string // the options' names
	problems []error
}

// allowance is which problems are allowed.
type allowance struct {
	all   bool
	paths []string
}

func named(name string, set func(*settings)) Option {
	return func(s *settings) {
		set(s)
		s.given = append(s.given, name)
	}
}

func newSettings(c *client.Client, options []Option, allowed ...string) (settings, error) {
	s := settings{allowed: map[Severity]allowance{}}
	for _, option := range options {
		if option == nil {
			s.problems = append(s.problems, errors.New("an option is nil"))
			continue
		}
		option(&s)
	}
	for _, name := range s.given {
		if !slices.Contains(allowed, name) {
			s.problems = append(s.problems, fmt.Errorf("option %s has no meaning here: possible are %q", name, allowed))
		}
	}
	if c == nil {
		s.problems = append(s.problems, errors.New("the client is nil: client.New makes one"))
	} else {
		s.logger = cmp.Or(s.logger, c.Config().Logger)
		// What informers show is a little old, and a definition that was removed and is still shown
		// would not be made again.
		past, err := c.With(func(config *client.Config) { config.Informers = nil })
		if err != nil {
			s.problems = append(s.problems, err)
		}
		s.client = past
	}
	s.timeout = cmp.Or(s.timeout, DefaultTimeout)
	return s, errors.Join(s.problems...)
}

func (s *settings) allow(severity Severity, paths []string) {
	a := s.allowed[severity]
	a.all = a.all || len(paths) == 0
	a.paths = append(a.paths, paths...)
	s.allowed[severity] = a
}

// allows reports whether the caller has said that the problem is right.
func (s settings) allows(p Problem) bool {
	a := s.allowed[p.Severity]
	return a.all || slices.Contains(a.paths, p.Path)
}
