package controller

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// TestCausesThatEndBackoff checks which causes end a backoff by default, and which always do.
func TestCausesThatEndBackoff(t *testing.T) {
	widget := func(cause Cause) Cause {
		cause.Kind, cause.Object = schema.GroupKind{Kind: "Widget"}, kube.Key{Namespace: "ns", Name: "a"}
		return cause
	}
	never := orOtherObject(func(Cause) bool { return false })
	for name, test := range map[string]struct {
		cause             Cause
		byDefault, always bool
	}{
		"a timer":                      {Cause{Type: CauseTimer, Source: SourceLoop}, true, false},
		"a trigger without an object":  {Cause{Type: CauseTriggered, Source: "registry"}, true, false},
		"a trigger with an object":     {widget(Cause{Type: CauseTriggered, Source: "registry"}), true, false},
		"a resync":                     {Cause{Type: CauseResync, Source: SourceLoop}, false, false},
		"the object's creation":        {widget(Cause{Type: CauseAdded, Source: SourceSelf}), true, true},
		"the object's deletion":        {widget(Cause{Type: CauseDeleted, Source: SourceSelf}), true, true},
		"the object's replacement":     {widget(Cause{Type: CauseUpdated, Source: SourceSelf, Changed: kube.ChangedUID}), true, true},
		"a change of its spec":         {widget(Cause{Type: CauseUpdated, Source: SourceSelf, Changed: kube.ChangedSpec}), true, false},
		"a change of its status":       {widget(Cause{Type: CauseUpdated, Source: SourceSelf, Changed: kube.ChangedStatus}), false, false},
		"the deletion of a child":      {widget(Cause{Type: CauseDeleted, Source: "parts"}), false, false},
		"a change of the child's spec": {widget(Cause{Type: CauseUpdated, Source: "parts", Changed: kube.ChangedSpec}), false, false},
	} {
		if got := endsBackoffByDefault(test.cause); got != test.byDefault {
			t.Errorf("%s ends a backoff by default: %v, want %v", name, got, test.byDefault)
		}
		if got := never(test.cause); got != test.always {
			t.Errorf("%s ends a backoff although EndBackoffIf returns false: %v, want %v", name, got, test.always)
		}
	}
}

// TestForgottenKeyIsNotReportedAsStalled checks that a key whose failures were removed, because its object was deleted
// during the run, does not become a problem that would never end.
func TestForgottenKeyIsNotReportedAsStalled(t *testing.T) {
	all := &problems{open: map[problemID]Problem{}}
	f := failures{observers: observerList{all}, keys: map[kube.Key]*failing{}}
	if f.giveUp(t.Context(), kube.Key{Namespace: "ns", Name: "a"}) || len(all.all()) > 0 {
		t.Error("a key without failures is reported as stalled")
	}
}

// A key may begin to fail while a cause that brings its run forward is being added.
func TestCauseThatIsAddedWhileKeyBeginsToFail(t *testing.T) {
	t.Parallel()
	f := failures{keys: map[kube.Key]*failing{}}
	key, cause := kube.Key{Name: "a"}, Cause{Type: CauseAdded, Source: "parts", Object: kube.Key{Name: "p"}}
	endsBackoff := f.endBackoffIf(key, endsBackoffByDefault, mayHelp)
	f.failed(key, "", retry.Default, errors.New("no luck"), time.Now(), func(*failing) {})
	f.backOff(key, time.Now().Add(time.Hour), endsBackoffByDefault, mayHelp)
	if !endsBackoff(cause) {
		t.Error("the cause does not bring the run forward")
	}
	if endsBackoff(cause) {
		t.Error("the cause brings the run forward a second time")
	}
}
