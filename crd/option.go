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

// DefaultTimeout bounds each call of Ensure, Remove and WaitEstablished that has no option Timeout.
const DefaultTimeout = time.Minute

const (
	// pollInterval is the time between two requests for the cluster's resources, which cannot be watched.
	// The API server usually lists a new definition within 100 ms.
	pollInterval = 100 * time.Millisecond
	// logDelay is the time before a wait is first logged, logInterval the time between later log lines.
	logDelay    = 2 * time.Second
	logInterval = 10 * time.Second
	// describeTimeout bounds the requests that describe what blocks a deletion after the call has timed out.
	describeTimeout = 2 * time.Second
)

// Option configures Ensure, Remove or WaitEstablished. The documentation of each function lists the options
// that it accepts; it returns an error for the others.
type Option func(*settings)

// Timeout bounds the whole call. It must be positive. Default DefaultTimeout, 1 min. After the timeout, a
// call that waits for a deletion may take up to 2 s more to find the objects that block it.
func Timeout(d time.Duration) Option {
	return option("Timeout", func(s *settings) {
		if d <= 0 {
			s.problems = append(s.problems, fmt.Errorf("option Timeout is %s, must be positive", d))
		}
		s.timeout = d
	})
}

// Logger receives a message after a wait of 2 s and then every 10 s. Default: the client's logger.
func Logger(logger *slog.Logger) Option {
	return option("Logger", func(s *settings) { s.logger = logger })
}

// AllowDataLoss allows Lossy changes. paths are the Path values of the Problems to allow, such as
// "v1: spec.size". Without paths it allows all of them, which is only suitable for development clusters.
func AllowDataLoss(paths ...string) Option {
	return option("AllowDataLoss", func(s *settings) { s.allow(Lossy, paths) })
}

// AllowNarrowing allows Narrowing changes. paths are the Path values of the Problems to allow; without
// paths it allows all of them.
func AllowNarrowing(paths ...string) Option {
	return option("AllowNarrowing", func(s *settings) { s.allow(Narrowing, paths) })
}

// DeleteObjectsToo allows Remove to delete all objects of the kind together with the definition.
func DeleteObjectsToo() Option {
	return option("DeleteObjectsToo", func(s *settings) { s.deleteObjects = true })
}

// settings are the evaluated options of one call.
type settings struct {
	client        *client.Client // the caller's client without its informers
	timeout       time.Duration
	logger        *slog.Logger
	allowed       map[Severity]allowance
	deleteObjects bool

	optionNames []string // the options that the caller passed
	problems    []error
}

// allowance lists the allowed problems of one severity.
type allowance struct {
	all   bool
	paths []string // values of Problem.Path
}

// option returns an Option that newSettings identifies by name.
func option(name string, set func(*settings)) Option {
	return func(s *settings) {
		set(s)
		s.optionNames = append(s.optionNames, name)
	}
}

// newSettings evaluates options. It returns an error for options other than the allowed ones.
func newSettings(c *client.Client, options []Option, allowed ...string) (settings, error) {
	s := settings{allowed: map[Severity]allowance{}}
	for _, option := range options {
		if option == nil {
			s.problems = append(s.problems, errors.New("an option is nil"))
			continue
		}
		option(&s)
	}
	for _, name := range s.optionNames {
		if !slices.Contains(allowed, name) {
			s.problems = append(s.problems, fmt.Errorf("option %s has no meaning here: use only %q", name, allowed))
		}
	}
	if c == nil {
		s.problems = append(s.problems, errors.New("the client is nil: client.New makes one"))
	} else {
		s.logger = cmp.Or(s.logger, c.Config().Logger)
		// Informers may be stale: Ensure would not create a definition that an informer still has.
		uncached, err := c.With(func(config *client.Config) { config.Informers = nil })
		if err != nil {
			s.problems = append(s.problems, err)
		}
		s.client = uncached
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

// allows reports whether an option allows the problem. Impossible problems are never allowed.
func (s settings) allows(p Problem) bool {
	a := s.allowed[p.Severity]
	return a.all || slices.Contains(a.paths, p.Path)
}
