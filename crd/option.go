package crd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/client"
)

// defaultTimeout bounds each call of Ensure, Remove and WaitEstablished whose context has no deadline.
const defaultTimeout = time.Minute

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

// EnsureOption is an option of Ensure: AllowDataLoss, AllowNarrowing or AcceptNewer.
type EnsureOption func(s *settings)

// MigrateOption is an option of Migrate: Pace.
type MigrateOption func(s *settings)

// AllowDataLoss allows lossy changes. paths are the Path values of the Problems to allow, such as
// "v1: spec.size". Without paths it allows all of them, which is only suitable for development clusters.
func AllowDataLoss(paths ...string) EnsureOption {
	return func(s *settings) { s.allow(lossy, paths) }
}

// AllowNarrowing allows narrowing changes. paths are the Path values of the Problems to allow; without
// paths it allows all of them.
func AllowNarrowing(paths ...string) EnsureOption {
	return func(s *settings) { s.allow(narrowing, paths) }
}

// AcceptNewer makes Ensure keep a definition that a newer version of the program has installed, so that the
// older version can restart during a rolling update, and can be rolled back to. Ensure keeps a definition if it
// would refuse the change, or if the change goes back to an earlier storage version (v2 to v1), and if the kept
// definition still has everything that the given one has: Compare reports no problem in the direction from the
// given definition to the kept one. The caller's definition must have exactly the served versions that the program
// uses. Default: return a ChangeError.
func AcceptNewer() EnsureOption {
	return func(s *settings) { s.acceptNewer = true }
}

// Pace limits Migrate to a number of objects per second. It must be positive. Default: no limit.
func Pace(objectsPerSecond float64) MigrateOption {
	return func(s *settings) {
		if !(objectsPerSecond > 0) { // false for NaN
			s.problems = append(s.problems, fmt.Errorf("option Pace is %v, must be positive", objectsPerSecond))
			return
		}
		const longest = 1000 * 24 * time.Hour // a Duration cannot have any value of a float64
		s.pace = time.Duration(min(float64(time.Second)/objectsPerSecond, float64(longest)))
	}
}

// settings are the evaluated options of one call.
type settings struct {
	client      *client.Client // the caller's client without its informers
	timeout     time.Duration
	logger      *slog.Logger
	allowed     map[severity]allowance
	acceptNewer bool
	pace        time.Duration // between two objects

	problems []error
}

// allowance lists the allowed problems of one severity.
type allowance struct {
	all   bool
	paths []string // values of Problem.Path
}

// newSettings evaluates options. It returns an error that names every invalid one.
func newSettings[O ~func(*settings)](ctx context.Context, c *client.Client, options ...O) (settings, error) {
	s := settings{allowed: map[severity]allowance{}, timeout: defaultTimeout}
	if deadline, ok := ctx.Deadline(); ok {
		s.timeout = time.Until(deadline)
	}
	for _, option := range options {
		if option == nil {
			s.problems = append(s.problems, errors.New("an option is nil"))
			continue
		}
		option(&s)
	}
	if c == nil {
		s.problems = append(s.problems, errors.New("the client is nil: client.New makes one"))
	} else {
		s.logger = c.Cluster().Logger()
		// Informers may be stale: Ensure would not create a definition that an informer still has.
		uncached, err := c.With(func(config *client.Config) { config.Informers = nil })
		if err != nil {
			s.problems = append(s.problems, err)
		}
		s.client = uncached
	}
	return s, errors.Join(s.problems...)
}

func (s *settings) allow(severity severity, paths []string) {
	a := s.allowed[severity]
	a.all = a.all || len(paths) == 0
	a.paths = append(a.paths, paths...)
	s.allowed[severity] = a
}

// allows reports whether an option allows the problem. Impossible problems are never allowed.
func (s settings) allows(p Problem) bool {
	a := s.allowed[p.severity]
	return a.all || slices.Contains(a.paths, p.Path)
}
