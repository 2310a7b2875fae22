package event

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Defaults of Config.
const (
	DefaultQueueSize      = 1000
	DefaultObjectBurst    = 25
	DefaultObjectInterval = 5 * time.Minute
	DefaultObjects        = 1000
	DefaultRepeatInterval = 5 * time.Minute
	DefaultFlushTimeout   = 2 * time.Second
)

// Config says whose events are sent where, and how many. It is taken by value: New neither
// keeps nor changes the caller's.
type Config struct {
	// Cluster is where events are sent. Required.
	Cluster *kube.Cluster
	// Controller says who speaks: the Events' reportingController, a name like a label's key,
	// "shop-operator" or "shop.example.com/operator". Required.
	Controller string
	// Instance tells the processes of one controller apart: the Events' reportingInstance, of
	// at most 128 bytes. Default: the host's name, which in a Pod is the Pod's.
	Instance string

	// QueueSize is how many events may wait to be sent. Default 1000.
	QueueSize int
	// ObjectBurst is how many different events about one object may be sent in a row, and
	// ObjectInterval how long it takes until one more may be. Repeats are not counted.
	// Default 25, and 5 min.
	ObjectBurst    int
	ObjectInterval time.Duration
	// Objects is of how many objects the budget and the last events are remembered; of the
	// others, those that were spoken of last. Each takes about 1 KB for each of its last
	// events. Default 1000.
	Objects int
	// RepeatInterval is how often the count of an event that is repeated is sent, at most. It
	// should be well below the time for which the API server keeps Events, 1 h by default.
	// Default 5 min.
	RepeatInterval time.Duration
	// FlushTimeout is how long Run goes on, after its context has ended, to send what is
	// queued. Default 2 s; negative: not at all.
	FlushTimeout time.Duration

	// Logger receives what could not be sent and what was dropped, as warnings: at most one a
	// minute for each class of errors (retry.Class; Forbidden is two, by a Role and otherwise), one
	// for drops, and one for objects that no Event can be about. That a Role lacks a permission is said once for each namespace, until it
	// has had it in between. Default: slog.Default() at the time of New.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	c.QueueSize = cmp.Or(c.QueueSize, DefaultQueueSize)
	c.ObjectBurst = cmp.Or(c.ObjectBurst, DefaultObjectBurst)
	c.ObjectInterval = cmp.Or(c.ObjectInterval, DefaultObjectInterval)
	c.Objects = cmp.Or(c.Objects, DefaultObjects)
	c.RepeatInterval = cmp.Or(c.RepeatInterval, DefaultRepeatInterval)
	c.FlushTimeout = max(cmp.Or(c.FlushTimeout, DefaultFlushTimeout), 0)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Instance == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("find the host's name: %w: set Instance instead", err)
		}
		c.Instance = cut(host, maxShort)
	}
	return c, nil
}

// validate names the mistakes in a config with its defaults set.
func (c Config) validate() error {
	var errs []error
	mistake := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Cluster == nil {
		mistake("Cluster is required: kube.Connect makes one")
	}
	if c.Controller == "" {
		mistake("Controller is required: Events say who speaks")
	} else if problems := validation.IsQualifiedName(c.Controller); problems != nil {
		mistake("Controller %q cannot be a reportingController: %s", c.Controller, strings.Join(problems, ", "))
	}
	if len(c.Instance) > maxShort {
		mistake("Instance has %d bytes, more than %d", len(c.Instance), maxShort)
	}
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"QueueSize", int64(c.QueueSize)},
		{"ObjectBurst", int64(c.ObjectBurst)},
		{"ObjectInterval", int64(c.ObjectInterval)},
		{"Objects", int64(c.Objects)},
		{"RepeatInterval", int64(c.RepeatInterval)},
	} {
		if field.value < 0 {
			mistake("%s is %d: it cannot be negative (0: the default)", field.name, field.value)
		}
	}
	return errors.Join(errs...)
}
