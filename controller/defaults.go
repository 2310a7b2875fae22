package controller

import (
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// defaultsKey identifies the controllers of a Cluster that have the same defaults: those of objects of a Go type, or
// all, for NoObject.
type defaultsKey struct{ object reflect.Type }

// defaultFields returns the fields of Config that have defaults.
func defaultFields() []string {
	return []string{
		"Workers", "ResyncInterval", "Timeout", "SyncTimeout", "Retry", "Queue", "Runs", "RunLogger",
	}
}

// SetDefaults sets defaults for the controllers of a Cluster that are created later, also for those of operators: with
// T = NoObject for all of them, with another T for those whose objects have this Go type, which take precedence. Each
// field that is zero in the Config of a controller gets the value in config: Workers, ResyncInterval, Timeout,
// SyncTimeout, RunLogger, and single fields of Retry, Queue and Runs. The controllers share a Queue.Limiter, which then
// limits the runs of all of them together.
//
// Errors: other fields; those of New; a second call with T; a controller that was created already.
func SetDefaults[T kube.Object](cluster *kube.Cluster, config Config[T]) error {
	var mistakes usercode.Mistakes
	others := usercode.OtherFields(config, defaultFields()...)
	mistakes.AddIf(len(others) > 0, "%s: only these have defaults: %s", strings.Join(others, ", "),
		strings.Join(defaultFields(), ", "))
	config.validateValues(&mistakes)
	_, err := retryrules.New(config.Retry)
	mistakes.Join(err)
	object := reflect.TypeFor[T]()
	if err = mistakes.Err(); err == nil {
		config.Retry.Policies = maps.Clone(config.Retry.Policies)
		err = apiobject.ObserversOf(cluster).SetDefaults(defaultsKey{object}, config)
	}
	if err != nil {
		return fmt.Errorf("set the defaults of controllers of %s: %w", object, err)
	}
	return nil
}

// fromCluster returns the config with the defaults of its Cluster, whose functions g guards.
func (c Config[T]) fromCluster(g *usercode.Guard) Config[T] {
	observers := apiobject.ObserversOf(c.Cluster)
	if own, ok := observers.Defaults(defaultsKey{reflect.TypeFor[T]()}).(Config[T]); ok {
		c.fillIn(own.guarded(g))
	}
	if all, ok := defaultsOfAll(observers); ok {
		c.fillIn(all.guarded(g))
	}
	return c
}

// fillIn sets the zero fields to those of defaults, a Config. As without defaults, the controller's own Base of
// Retry.Every raises Max, and its own Max lowers Base.
func (c *Config[T]) fillIn(defaults any) {
	own, every := c.Retry.Every, &c.Retry.Every
	usercode.FillIn(c, defaults, defaultFields()...)
	switch {
	case every.Max <= 0 || every.Base <= every.Max:
	case own.Max == 0:
		every.Max = every.Base
	case own.Base == 0:
		every.Base = every.Max
	}
}
