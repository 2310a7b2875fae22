package owned

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

func TestReportDescribesPendingChildren(t *testing.T) {
	t.Parallel()
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	result := func(name string, outcome ChildOutcome) Result {
		return Result{
			Kind: kind, Key: kube.Key{Namespace: "shop", Name: name}, Desired: true, Outcome: outcome,
			Readiness: readiness.State{Status: readiness.Current},
		}
	}
	ready, slow, waits, failed := result("ready", Unchanged), result("slow", Updated), result("waits", outcomeWaiting), result("failed", outcomeFailed)
	slow.Readiness = readiness.State{Status: readiness.InProgress, Message: "1 of 2 replicas are available"}
	waits.Waits = "wave 0 is not ready"
	failed.Err = errors.New("apply ConfigMap shop/failed: refused")
	old := result("old", outcomeTerminating)
	old.Desired, old.terminating = false, &termination{since: time.Unix(0, 0), finalizers: []string{"example.com/a"}}
	report := Report{Results: []Result{ready, slow, waits, failed, old}}
	want := "ConfigMap shop/slow: 1 of 2 replicas are available; ConfigMap shop/waits waits: wave 0 is not ready; " +
		"apply ConfigMap shop/failed: refused"
	if got := report.Pending(); got != want || report.Ready() {
		t.Errorf("ready %t: %s", report.Ready(), got)
	}
	want = "ConfigMap shop/old: it is being deleted since 1970-01-01T00:00:00Z, held by finalizers example.com/a"
	if got := report.Remaining(); got != want {
		t.Error(got)
	}
	if report = (Report{Results: []Result{ready, old}}); !report.Ready() || report.Pending() != "" {
		t.Errorf("ready %t: %s", report.Ready(), report.Pending())
	}
	report = Report{Results: slices.Repeat([]Result{slow}, 8)}
	if got := report.Pending(); strings.Count(got, "slow") != 5 || !strings.HasSuffix(got, "and 3 more") {
		t.Error(got)
	}
	for n, want := range []string{
		"", "wave 0 is not ready: ConfigMap shop/slow: 1 of 2 replicas are available",
		"wave 0 is not ready: ConfigMap shop/slow: 1 of 2 replicas are available (and 1 more)",
	} {
		if got := waitText(slices.Repeat([]Result{slow}, n), "ready"); got != want {
			t.Errorf("%d pending children: %q, want %q", n, got, want)
		}
	}
	pruned := Result{Kind: kind, Outcome: Deleted}
	if report = (Report{Results: []Result{ready, pruned}}); report.Remaining() != "" || !report.Ready() {
		t.Errorf("remaining %q, ready %t", report.Remaining(), report.Ready())
	}
	if report = (Report{OwnerTerminating: true}); report.Ready() || report.Pending() == "" {
		t.Error("an owner that is being deleted is ready")
	}
}

// If a child could not be deleted, Apply returns an error, and the report is not ready.
func TestReportWithFailedPruneIsNotReady(t *testing.T) {
	t.Parallel()
	for want, err := range map[readiness.Status]error{readiness.InProgress: errors.New("prune: refused"), readiness.Failed: refusal()} {
		report := Report{Results: []Result{
			{Desired: true, Outcome: Unchanged, Readiness: readiness.State{Status: readiness.Current}}, {Outcome: outcomeFailed, Err: err}, {Outcome: outcomeForeign},
		}}
		if report.Ready() || report.Pending() != err.Error() {
			t.Errorf("ready: %t, pending: %q", report.Ready(), report.Pending())
		}
		if states := report.States(); len(states) != 2 || states[0].Status != readiness.Current || states[1].Status != want || states[1].Message != err.Error() {
			t.Errorf("%+v", states)
		}
	}
}

func TestStatesOfChildren(t *testing.T) {
	t.Parallel()
	state := func(status readiness.Status) readiness.State { return readiness.State{Status: status, Message: "why"} }
	for name, test := range map[string]struct {
		result Result
		want   readiness.Status
	}{
		"ready":            {Result{Outcome: Updated, Readiness: readiness.State{Status: readiness.Current}}, readiness.Current},
		"not ready yet":    {Result{Outcome: Unchanged, Readiness: state(readiness.InProgress)}, readiness.InProgress},
		"failed":           {Result{Outcome: Unchanged, Readiness: state(readiness.Failed)}, readiness.Failed},
		"not applied":      {Result{Outcome: outcomeFailed, Err: errors.New("refused")}, readiness.InProgress},
		"cannot change":    {Result{Outcome: outcomeFailed, Err: &immutableError{err: refusal(metav1.StatusCause{})}}, readiness.Failed},
		"somebody else's":  {Result{Outcome: outcomeForeign, Err: &ForeignError{}}, readiness.Failed},
		"earlier owner's":  {Result{Outcome: outcomeForeign, Err: &ForeignError{Former: true}}, readiness.InProgress},
		"not accepted":     {Result{Outcome: outcomeFailed, Err: refusal()}, readiness.Failed},
		"waits":            {Result{Outcome: outcomeWaiting}, readiness.InProgress},
		"is being deleted": {Result{Outcome: outcomeTerminating, terminating: &termination{}}, readiness.InProgress},
	} {
		test.result.Desired = true
		states := Report{Results: []Result{test.result, {Outcome: Deleted}}}.States()
		if len(states) != 1 || states[0].Status != test.want || (states[0].Message == "") != (test.want == readiness.Current) {
			t.Errorf("%s: %+v", name, states)
		}
	}
	for want, err := range map[readiness.Status]error{readiness.InProgress: errors.New("the list failed"), readiness.Failed: refusal()} {
		failed := Report{failure: err}
		if states := failed.States(); len(states) != 1 || states[0].Status != want || failed.Ready() || failed.Remaining() == "" || failed.Pending() == "" {
			t.Errorf("%v: %+v, ready %t, remaining %q, pending %q", err, states, failed.Ready(), failed.Remaining(), failed.Pending())
		}
	}
	if states := (Report{OwnerTerminating: true}).States(); len(states) != 1 || states[0].Status != readiness.Terminating {
		t.Errorf("%+v", states)
	}
}

func TestObjectFindsChildByTypeAndKey(t *testing.T) {
	t.Parallel()
	key := kube.Key{Namespace: "shop", Name: "web"}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	report := Report{Results: []Result{{Key: key}, {Key: key, Object: service}}}
	if got, found := Object[*corev1.Service](report, key); got != service || !found {
		t.Errorf("found %t: %v", found, got)
	}
	if got, found := Object[*corev1.ConfigMap](report, key); got != nil || found {
		t.Errorf("another type: found %t: %v", found, got)
	}
	if got, found := Object[*corev1.Service](report, kube.Key{Namespace: "shop", Name: "db"}); got != nil || found {
		t.Errorf("another key: found %t: %v", found, got)
	}
}
