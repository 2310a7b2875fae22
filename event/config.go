package event

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Defaults of Config.
const (
	defaultQueueSize      = 1000
	defaultObjectBurst    = 25
	defaultRepeatInterval = 5 * time.Minute
	defaultFlushTimeout   = 2 * time.Second
)

const (
	// objectInterval is the time after which one more event about an object is allowed.
	objectInterval = 5 * time.Minute
	// minObjects is the minimum number of objects with a stored budget and stored events.
	minObjects = 1000
)

// Config configures a Recorder. New copies it.
type Config struct {
	// Cluster receives the Events. Required.
	Cluster *kube.Cluster
	// Controller is the Events' reportingController, a qualified name such as "shop-operator" or
	// "shop.example.com/operator". Required.
	Controller string

	// QueueSize is the maximum number of new events that wait to be sent. If it is reached, an event of a namespace
	// whose last request has failed temporarily gives way to one of another namespace. The Recorder keeps the events of
	// the most recent objects, at most as many objects, and at least 1000; each event needs about 1 KB. Default 1000.
	QueueSize int
	// ObjectBurst is the number of different events about one object that may be sent in a row. One more is allowed
	// every 5 min. Repeats do not count. Default 25.
	ObjectBurst int
	// RepeatInterval is the minimum time between two updates of the count of a repeated event. It should be
	// well below the lifetime of Events in the API server, 1 h by default. Default 5 min.
	RepeatInterval time.Duration
	// FlushTimeout is the time that Run may take to send queued events after its context has ended. Default
	// 2 s; negative: 0.
	FlushTimeout time.Duration
}

func (c Config) withDefaults() Config {
	c.QueueSize = cmp.Or(c.QueueSize, defaultQueueSize)
	c.ObjectBurst = cmp.Or(c.ObjectBurst, defaultObjectBurst)
	c.RepeatInterval = cmp.Or(c.RepeatInterval, defaultRepeatInterval)
	c.FlushTimeout = max(cmp.Or(c.FlushTimeout, defaultFlushTimeout), 0)
	return c
}

// validate returns all mistakes in a Config with defaults set.
func (c Config) validate() error {
	var mistakes usercode.Mistakes
	mistakes.AddIf(c.Cluster == nil, "Cluster is required: kube.Connect makes one")
	if c.Controller == "" {
		mistakes.Addf("Controller is required: it becomes the Events' reportingController")
	} else if problems := validation.IsQualifiedName(c.Controller); problems != nil {
		mistakes.Addf("Controller %q is not a valid reportingController: %s", c.Controller,
			strings.Join(problems, ", "))
	}
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"QueueSize", int64(c.QueueSize)},
		{"ObjectBurst", int64(c.ObjectBurst)},
		{"RepeatInterval", int64(c.RepeatInterval)},
	} {
		mistakes.AddIf(field.value < 0, "%s is %d, must not be negative (0: the default)", field.name, field.value)
	}
	return mistakes.Err()
}
