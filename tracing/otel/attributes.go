package otel

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
)

// The attributes without a semantic convention. doc.go lists them.
const (
	keyController = attribute.Key("evenkeel.controller")
	keyKey        = attribute.Key("evenkeel.key")
	keyRunID      = attribute.Key("evenkeel.run.id")
	keyUID        = attribute.Key("evenkeel.object.uid")
	keyGeneration = attribute.Key("evenkeel.object.generation")
	keyAttempt    = attribute.Key("evenkeel.attempt")
	keyCauses     = attribute.Key("evenkeel.causes")
	keyOutcome    = attribute.Key("evenkeel.outcome")
	keyRequeue    = attribute.Key("evenkeel.requeue_after")

	keyCauseType     = attribute.Key("evenkeel.cause.type")
	keyCauseSource   = attribute.Key("evenkeel.cause.source")
	keyCauseKind     = attribute.Key("evenkeel.cause.kind")
	keyCauseObject   = attribute.Key("evenkeel.cause.object")
	keyCauseUID      = attribute.Key("evenkeel.cause.uid")
	keyCauseResource = attribute.Key("evenkeel.cause.resource_version")
	keyCauseChanged  = attribute.Key("evenkeel.cause.changed")
	keyCauseManager  = attribute.Key("evenkeel.cause.manager")
	keyCauseAttempt  = attribute.Key("evenkeel.cause.attempt")
	keyCauseDetail   = attribute.Key("evenkeel.cause.detail")
	keyCauseCount    = attribute.Key("evenkeel.cause.count")
	keyCauseDelay    = attribute.Key("evenkeel.cause.delay")

	keyQueueHeld = attribute.Key("evenkeel.queue.held")

	keyCallVerb        = attribute.Key("evenkeel.call.verb")
	keyCallResource    = attribute.Key("evenkeel.call.resource")
	keyCallSubresource = attribute.Key("evenkeel.call.subresource")
	keyCallName        = attribute.Key("evenkeel.call.name")
	keyCallDryRun      = attribute.Key("evenkeel.call.dry_run")

	keyLinkKey = attribute.Key("evenkeel.link.key")
)

// attributes is a list without empty and zero values.
type attributes []attribute.KeyValue

func (a attributes) text(key attribute.Key, value string) attributes {
	if value == "" {
		return a
	}
	return append(a, key.String(value))
}

func (a attributes) number(key attribute.Key, value int64) attributes {
	if value == 0 {
		return a
	}
	return append(a, key.Int64(value))
}

func (a attributes) seconds(key attribute.Key, value time.Duration) attributes {
	if value <= 0 {
		return a
	}
	return append(a, key.Float64(value.Seconds()))
}

func runAttributes(run controller.RunRecord) attributes {
	return make(attributes, 0, 8).
		text(keyController, run.Controller).
		text(keyKey, run.Key.String()).
		text(semconv.K8SNamespaceNameKey, run.Key.Namespace).
		number(keyRunID, int64(run.ID)). //nolint:gosec // a count
		text(keyUID, string(run.UID)).
		number(keyGeneration, run.Generation).
		number(keyAttempt, int64(run.Attempt)).
		text(keyCauses, run.Causes.String())
}

// causeAttributes returns the attributes of a cause. delay is the planned time between the cause and its effect.
func causeAttributes(c controller.Cause, delay time.Duration) attributes {
	a := make(attributes, 0, 12).
		text(keyCauseType, string(c.Type)).
		text(keyCauseSource, c.Source).
		text(keyCauseKind, c.Kind.String()).
		text(keyCauseUID, string(c.UID)).
		text(keyCauseResource, c.ResourceVersion).
		text(keyCauseManager, c.Manager).
		number(keyCauseAttempt, int64(c.Attempt)).
		text(keyCauseDetail, c.Detail).
		seconds(keyCauseDelay, delay)
	if c.Count > 1 {
		a = a.number(keyCauseCount, int64(c.Count))
	}
	if c.Object != (kube.Key{}) {
		a = a.text(keyCauseObject, c.Object.String())
	}
	if c.Changed != 0 {
		a = a.text(keyCauseChanged, c.Changed.Summary())
	}
	return a
}

func callAttributes(call kube.Call) attributes {
	a := make(attributes, 0, 6).
		text(semconv.HTTPRequestMethodKey, methodOf(call.Verb)).
		text(semconv.K8SNamespaceNameKey, call.Key.Namespace).
		text(keyCallVerb, call.Verb).
		text(keyCallSubresource, call.Subresource).
		text(keyCallName, call.Key.Name)
	if call.Resource.Resource != "" {
		a = a.text(keyCallResource, call.Resource.GroupResource().String())
	}
	if call.DryRun {
		a = append(a, keyCallDryRun.Bool(true))
	}
	return a
}

// methodOf returns the HTTP method of a verb, or "" for a request without a resource, because kube.Call does not have
// its method.
func methodOf(verb string) string {
	switch verb {
	case "get", "list", "watch":
		return "GET"
	case "create":
		return "POST"
	case "update":
		return "PUT"
	case "patch":
		return "PATCH"
	case "delete", "deletecollection":
		return "DELETE"
	}
	return ""
}
