package event

import (
	"cmp"
	"fmt"
	"os"
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
	defaultObjectInterval = 5 * time.Minute
	defaultObjects        = 1000
	defaultRepeatInterval = 5 * time.Minute
	defaultFlushTimeout   = 2 * time.Second
)

// Config configures a Recorder. New copies it.
type Config struct {
	// Cluster receives the Events. Required.
	Cluster *kube.Cluster
	// Controller is the Events' reportingController, a qualified name such as "shop-operator" or
	// "shop.example.com/operator". Required.
	Controller string
	// Instance is the Events' reportingInstance, which identifies the process, at most 128 bytes. Default: the host
	// name, which is the Pod's name in a Pod.
	Instance string

	// QueueSize is the maximum number of new events that wait to be sent. If it is reached, an event of a namespace
	// whose last request has failed temporarily gives way to one of another namespace. Default 1000.
	QueueSize int
	// ObjectBurst is the number of different events about one object that may be sent in a row.
	// ObjectInterval is the time after which one more is allowed. Repeats do not count. Default 25, and 5
	// min.
	ObjectBurst    int
	ObjectInterval time.Duration
	// Objects is the maximum number of objects with a stored budget and stored events. The Recorder keeps the objects
	// of the most recent events. It uses about 1 KB of memory for each kept event. Default 1000.
	Objects int
	// RepeatInterval is the minimum time between two updates of the count of a repeated event. It should be
	// well below the lifetime of Events in the API server, 1 h by default. Default 5 min.
	RepeatInterval time.Duration
	// FlushTimeout is the time that Run may take to send queued events after its context has ended. Default
	// 2 s; negative: 0.
	FlushTimeout time.Duration
}

func (c Config) withDefaults() (Config, error) {
	c.QueueSize = cmp.Or(c.QueueSize, defaultQueueSize)
	c.ObjectBurst = cmp.Or(c.ObjectBurst, defaultObjectBurst)
	c.ObjectInterval = cmp.Or(c.ObjectInterval, defaultObjectInterval)
	c.Objects = cmp.Or(c.Objects, defaultObjects)
	c.RepeatInterval = cmp.Or(c.RepeatInterval, defaultRepeatInterval)
	c.FlushTimeout = max(cmp.Or(c.FlushTimeout, defaultFlushTimeout), 0)
	if c.Instance == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("get the host's name: %w: set Instance", err)
		}
		c.Instance = cut(host, maxShort)
	}
	return c, nil
}

// validate returns all mistakes in a Config with defaults set.
func (c Config) validate() error {
	var mistakes usercode.Mistakes
	if c.Cluster == nil {
		mistakes.Addf("Cluster is required: kube.Connect makes one")
	}
	if c.Controller == "" {
		mistakes.Addf("Controller is required: it becomes the Events' reportingController")
	} else if problems := validation.IsQualifiedName(c.Controller); problems != nil {
		mistakes.Addf("Controller %q is not a valid reportingController: %s", c.Controller,
			strings.Join(problems, ", "))
	}
	if len(c.Instance) > maxShort {
		mistakes.Addf("Instance has %d bytes, more than %d", len(c.Instance), maxShort)
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
			mistakes.Addf("%s is %d, must not be negative (0: the default)", field.name, field.value)
		}
	}
	return mistakes.Err()
}
