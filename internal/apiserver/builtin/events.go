package builtin

import (
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// Events returns the kinds Event of the core group and of events.k8s.io: two forms of the same objects, which are
// stored in the form of the core group. The second form is validated more strictly. The server does not delete Events
// after an hour.
func Events() []*apiserver.Kind {
	legacy := apiserver.Builtin[corev1.Event](corev1.SchemeGroupVersion.WithKind("Event"), "events", corev1.AddToScheme)
	legacy.ShortNames, legacy.CreateOnUpdate = []string{"ev"}, true
	legacy.Uncached = true
	legacy.From = func(obj apiserver.Object) (apiserver.Object, error) {
		if e, ok := obj.(*eventsv1.Event); ok {
			return coreEvent(e), nil
		}
		return obj, nil
	}
	legacy.Rules = apiserver.Rules{
		NoGarbageCollection: true,
		Validate: func(obj, _ apiserver.Object) field.ErrorList {
			return validateEvent(obj.(*corev1.Event), "reportingComponent").list
		},
		Fields: func(obj apiserver.Object) fields.Set {
			return eventFields(obj.(*corev1.Event), "involvedObject", "reportingComponent")
		},
		FieldLabels: append(eventLabels("involvedObject"), "reportingComponent", "source"),
	}
	current := apiserver.Builtin[eventsv1.Event](eventsv1.SchemeGroupVersion.WithKind("Event"), "events",
		eventsv1.AddToScheme)
	current.ShortNames, current.CreateOnUpdate = legacy.ShortNames, true
	current.Uncached = true
	current.Storage = legacy
	current.From = func(obj apiserver.Object) (apiserver.Object, error) {
		if e, ok := obj.(*corev1.Event); ok {
			return newEvent(e), nil
		}
		return obj, nil
	}
	current.Rules = apiserver.Rules{
		NoGarbageCollection: true,
		Validate: func(obj, old apiserver.Object) field.ErrorList {
			if old == nil {
				return validateNewEvent(coreEvent(obj.(*eventsv1.Event)))
			}
			return validateEventUpdate(coreEvent(obj.(*eventsv1.Event)), coreEvent(old.(*eventsv1.Event)))
		},
		Fields: func(obj apiserver.Object) fields.Set {
			return eventFields(coreEvent(obj.(*eventsv1.Event)), "regarding", "reportingController")
		},
		FieldLabels: append(eventLabels("regarding"), "reportingController"),
	}
	return []*apiserver.Kind{legacy, current}
}

// coreEvent converts an Event of events.k8s.io to the core group. The copy shares what writes do not change in place.
func coreEvent(e *eventsv1.Event) *corev1.Event {
	e = e.DeepCopy()
	converted := &corev1.Event{
		ObjectMeta: e.ObjectMeta, InvolvedObject: e.Regarding, Reason: e.Reason, Message: e.Note,
		Source:         e.DeprecatedSource,
		FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount,
		Type:      e.Type,
		EventTime: e.EventTime, Action: e.Action, Related: e.Related,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
	}
	if e.Series != nil {
		converted.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	converted.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Event"))
	return converted
}

// newEvent converts an Event of the core group to events.k8s.io.
func newEvent(e *corev1.Event) *eventsv1.Event {
	e = e.DeepCopy()
	converted := &eventsv1.Event{
		ObjectMeta: e.ObjectMeta, Regarding: e.InvolvedObject, Reason: e.Reason, Note: e.Message,
		DeprecatedSource:         e.Source,
		DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp, DeprecatedCount: e.Count,
		Type:      e.Type,
		EventTime: e.EventTime, Action: e.Action, Related: e.Related,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
	}
	if e.Series != nil {
		converted.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	converted.SetGroupVersionKind(eventsv1.SchemeGroupVersion.WithKind("Event"))
	return converted
}

// eventLabels returns the selectable fields that both forms have; object is the name of the field with the object.
func eventLabels(object string) []string {
	return []string{
		"reason", "type", object + ".kind", object + ".namespace", object + ".name", object + ".uid",
		object + ".apiVersion", object + ".resourceVersion", object + ".fieldPath",
	}
}

func eventFields(e *corev1.Event, object, controller string) fields.Set {
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	ref := e.InvolvedObject
	return fields.Set{
		"reason": e.Reason, "type": e.Type, controller: e.ReportingController, "source": source,
		object + ".kind": ref.Kind, object + ".namespace": ref.Namespace, object + ".name": ref.Name,
		object + ".uid":        string(ref.UID),
		object + ".apiVersion": ref.APIVersion, object + ".resourceVersion": ref.ResourceVersion,
		object + ".fieldPath": ref.FieldPath,
	}
}

// validateEvent checks the rules for both forms. controller is the name of the field with the reporting controller.
// Only Events with an eventTime have the fields of the new form.
func validateEvent(e *corev1.Event, controller string) *problems {
	const maxNote, maxText = 1024, 128
	p := &problems{}
	namespace := e.InvolvedObject.Namespace
	wrongNamespace := namespace != e.Namespace && (namespace != "" || e.Namespace != metav1.NamespaceDefault)
	if !e.EventTime.IsZero() {
		wrongNamespace = namespace == "" && e.Namespace != metav1.NamespaceDefault &&
			e.Namespace != metav1.NamespaceSystem
	}
	if wrongNamespace {
		p.invalid(field.NewPath("involvedObject", "namespace"), namespace, "does not match event.namespace")
	}
	if !e.EventTime.IsZero() {
		atMost := func(name, value string, limit int) {
			if len(value) > limit {
				p.invalid(field.NewPath(name), "", fmt.Sprintf("can have at most %v characters", limit))
			}
		}
		p.nonEmpty(field.NewPath(controller), e.ReportingController)
		p.invalidFor(field.NewPath(controller), e.ReportingController,
			utilvalidation.IsQualifiedName(e.ReportingController))
		for _, f := range []struct{ name, value string }{
			{"reportingInstance", e.ReportingInstance}, {"action", e.Action}, {"reason", e.Reason},
		} {
			p.nonEmpty(field.NewPath(f.name), f.value)
			atMost(f.name, f.value, maxText)
		}
		atMost("message", e.Message, maxNote)
	}
	p.invalidFor(field.NewPath("namespace"), e.Namespace, utilvalidation.IsDNS1123Subdomain(e.Namespace))
	return p
}

// validateNewEvent checks a new Event of events.k8s.io. Errors have the names of fields of the core group.
func validateNewEvent(e *corev1.Event) field.ErrorList {
	p := validateEvent(e, "reportingController")
	p.add(apiserver.ValidateCoreMetadata(e, true, validation.NameIsDNSSubdomain)...)
	p.series(e.Series)
	if e.EventTime.IsZero() {
		p.required(field.NewPath("eventTime"), "")
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		p.invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", e.Type))
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"firstTimestamp", !e.FirstTimestamp.IsZero()},
		{"lastTimestamp", !e.LastTimestamp.IsZero()},
		{"count", e.Count != 0},
		{"source", e.Source != corev1.EventSource{}},
	} {
		if f.set {
			p.invalid(field.NewPath(f.name), "", "needs to be unset")
		}
	}
	return p.list
}

// validateEventUpdate checks an update of an Event of events.k8s.io: only the metadata and the series may change.
func validateEventUpdate(e, old *corev1.Event) field.ErrorList {
	p := validateEvent(e, "reportingController")
	p.add(apiserver.ValidateCoreMetadataUpdate(e, old)...)
	if !reflect.DeepEqual(e.Series, old.Series) {
		p.series(e.Series)
	}
	immutable := func(name string, value, before any) { p.immutableInternal(field.NewPath(name), value, before) }
	immutable("involvedObject", e.InvolvedObject, old.InvolvedObject)
	immutable("reason", e.Reason, old.Reason)
	immutable("message", e.Message, old.Message)
	immutable("source", e.Source, old.Source)
	immutable("firstTimestamp", e.FirstTimestamp, old.FirstTimestamp)
	immutable("lastTimestamp", e.LastTimestamp, old.LastTimestamp)
	immutable("count", e.Count, old.Count)
	immutable("reason", e.Reason, old.Reason) // the real server reports it twice
	immutable("type", e.Type, old.Type)
	if !e.EventTime.Truncate(time.Microsecond).Equal(old.EventTime.Truncate(time.Microsecond)) {
		immutable("eventTime", e.EventTime, old.EventTime)
	}
	immutable("action", e.Action, old.Action)
	immutable("related", e.Related, old.Related)
	immutable("reportingController", e.ReportingController, old.ReportingController)
	immutable("reportingInstance", e.ReportingInstance, old.ReportingInstance)
	return p.list
}

func (p *problems) series(s *corev1.EventSeries) {
	if s == nil {
		return
	}
	if s.Count < 2 {
		p.invalid(field.NewPath("series.count"), "", "should be at least 2")
	}
	if s.LastObservedTime.IsZero() {
		p.required(field.NewPath("series.lastObservedTime"), "")
	}
}
