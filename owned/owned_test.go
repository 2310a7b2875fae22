package owned

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What needs the API server is tested in integration/owned.

func newClient(t *testing.T, fieldOwner string) *client.Client {
	t.Helper()
	cluster, err := kube.Connect(&rest.Config{Host: "http://nowhere.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: fieldOwner})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewNamesEveryMistake(t *testing.T) {
	t.Parallel()
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	_, err := New(Config{
		Client: newClient(t, ""), Name: "not a label",
		Kinds:      []schema.GroupVersionKind{kind, kind, {Kind: "Service"}},
		OnConflict: "maybe", Prune: "sometimes", Propagation: "sideways",
		ForceRemoveFinalizers: []string{""}, ForceRemoveAfter: -1,
	})
	for _, part := range []string{
		"FieldOwner", "Name is", "Kinds[1]", "Kinds[2]", "OnConflict", "Prune is", "Propagation", "ForceRemoveFinalizers[0]", "ForceRemoveAfter",
	} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not tell %q: %v", part, err)
		}
	}
	_, err = New(Config{})
	for _, part := range []string{"Client is required", "Name is required", "Kinds is required"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not tell %q: %v", part, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	set, err := New(Config{Client: newClient(t, "tests"), Name: "webapp", Kinds: []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap")}})
	if err != nil {
		t.Fatal(err)
	}
	c := set.config
	if c.OnConflict != ForceConflicts || c.Prune != PruneLast || c.Propagation != metav1.DeletePropagationBackground ||
		c.ForceRemoveAfter != 10*time.Minute || c.Logger == nil || c.Recreate || c.AdoptOrphans || c.Events != nil {
		t.Errorf("%+v", c)
	}
	if !set.dry.Config().DryRun {
		t.Error("plans would write")
	}
}

func TestNamespacesOf(t *testing.T) {
	t.Parallel()
	near, far := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}, &corev1.Node{}
	for name, test := range map[string]struct {
		owner metav1.Object
		given []string
		want  []string
	}{
		"the owner's":               {near, nil, []string{"shop"}},
		"the owner's and others":    {near, []string{"b", "shop", "b"}, []string{"shop", "b"}},
		"all, when it says so":      {near, []string{"b", metav1.NamespaceAll}, []string{""}},
		"all, of an owner in none":  {far, nil, []string{""}},
		"some, of an owner in none": {far, []string{"b"}, []string{"b"}},
	} {
		if got := (Config{Namespaces: test.given}).namespacesOf(test.owner); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestMarkKeepsTheCallersLabels(t *testing.T) {
	t.Parallel()
	set := &Set{config: Config{Name: "webapp"}}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}}
	given := map[string]string{"app": "web", LabelSet: "another"}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "c", Labels: given}}
	set.mark(owner, child, 0)
	if want := map[string]string{"app": "web", LabelSet: "webapp", labelOwnerUID: "u1"}; !maps.Equal(child.Labels, want) {
		t.Errorf("labels %v", child.Labels)
	}
	if want := map[string]string{annotationOwner: "shop/web", annotationChild: "b/c"}; !maps.Equal(child.Annotations, want) {
		t.Errorf("annotations %v", child.Annotations)
	}
	if given[LabelSet] != "another" {
		t.Error("a map that may be shared was changed")
	}
	if ownership, holder := set.ownershipOf(owner, child); ownership != own {
		t.Errorf("what was marked is %s's", holder)
	}
}

func TestOwnershipOf(t *testing.T) {
	t.Parallel()
	set := &Set{config: Config{Name: "webapp"}}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}}
	controlled := func(uid types.UID, set string) *corev1.ConfigMap {
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "web", UID: uid, Controller: new(true)},
		}}}
		if set != "" {
			child.Labels = map[string]string{LabelSet: set, labelOwnerUID: string(uid)}
		}
		return child
	}
	for name, test := range map[string]struct {
		child    *corev1.ConfigMap
		want     ownershipState
		original string
	}{
		"child":                                {controlled("u1", "webapp"), own, ""},
		"child without labels":                 {controlled("u1", ""), own, ""},
		"child of another set of the owner":    {controlled("u1", "another"), foreign, "set another of the same owner"},
		"child of another owner":               {controlled("u2", "webapp"), foreign, "ConfigMap web (uid u2)"},
		"child of another owner without label": {controlled("u2", ""), foreign, "ConfigMap web (uid u2)"},
	} {
		if got, original := set.ownershipOf(owner, test.child); got != test.want || original != test.original {
			t.Errorf("%s: %d, %q", name, got, original)
		}
	}
}

func TestWaveOf(t *testing.T) {
	t.Parallel()
	for noted, want := range map[string]int{"": 0, "3": 3, "-1": -1, "first": 0, "1.5": 0, "99999999999999999999": 0} {
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationWave: noted}}}
		if got := waveOf(child); got != want {
			t.Errorf("%q: %d", noted, got)
		}
	}
	if got := waveOf(&corev1.ConfigMap{}); got != 0 {
		t.Errorf("nothing noted: %d", got)
	}
}

func TestKindsThatAreNotServedExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var kinds notServed
		kind, other := schema.GroupKind{Kind: "A"}, schema.GroupKind{Kind: "B"}
		if kinds.has(kind) {
			t.Error("has an unknown kind")
		}
		kinds.add(kind)
		time.Sleep(notServedFor - 1)
		if !kinds.has(kind) || kinds.has(other) {
			t.Error("the kind expired too early, or another kind was added")
		}
		time.Sleep(time.Nanosecond)
		if kinds.has(kind) {
			t.Error("the kind does not expire")
		}
		kinds.add(kind)
		kinds.add(other)
		if kinds.remove(kind); kinds.has(kind) || !kinds.has(other) {
			t.Error("remove must remove one kind")
		}
	})
}

// refusal is an answer of the API server with these causes.
func refusal(causes ...metav1.StatusCause) error {
	return fmt.Errorf("apply: %w", &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Details: &metav1.StatusDetails{Causes: causes},
	}})
}

func TestImmutableFields(t *testing.T) {
	t.Parallel()
	invalid := func(field, message string) metav1.StatusCause {
		return metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: message}
	}
	forbidden := func(field, message string) metav1.StatusCause {
		return metav1.StatusCause{Type: metav1.CauseTypeForbidden, Field: field, Message: message}
	}
	template := invalid("spec.template", `Invalid value: core.PodTemplateSpec{Name: "x"}: field is immutable`)
	for name, test := range map[string]struct {
		err  error
		want []string // nil: no
	}{
		"a Job's template":     {refusal(template), []string{"spec.template"}},
		"a Deployment's":       {refusal(invalid("spec.selector", `Invalid value: {"a":"b"}: field is immutable`)), []string{"spec.selector"}},
		"a Service's address":  {refusal(invalid("spec.clusterIPs[0]", `Invalid value: ["10.0.0.1"]: may not change once set`)), []string{"spec.clusterIPs[0]"}},
		"a StatefulSet's":      {refusal(forbidden("spec", "Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden")), []string{"spec"}},
		"an immutable Secret":  {refusal(forbidden("data", "Forbidden: field is immutable when `immutable` is set")), []string{"data"}},
		"a RoleBinding's role": {refusal(invalid("roleRef", `Invalid value: rbac.RoleRef{}: cannot change roleRef`)), []string{"roleRef"}},
		"a rule of a CRD":      {refusal(invalid("spec.size", `Invalid value: "integer": size is immutable`)), []string{"spec.size"}},
		"two of one field":     {refusal(template, template), []string{"spec.template"}},
		"another fault":        {refusal(invalid("spec.replicas", "Invalid value: -1: must be greater than or equal to 0")), nil},
		"a fault besides":      {refusal(template, invalid("spec.replicas", "Invalid value: -1: must be at least 0")), nil},
		"a value with the word": {refusal(invalid("spec.text",
			`Invalid value: "field is immutable": must be shorter`)), nil},
		"a value that ends with it": {refusal(invalid("spec.text",
			`Invalid value: "a: field is immutable": must be shorter`)), nil},
		"a difference with the word": {refusal(forbidden("spec", "Forbidden: may not be set\n- immutable")), nil},
		"forbidden otherwise":        {refusal(forbidden("spec.x", "Forbidden: may not be set when y is")), nil},
		"no causes":                  {refusal(), nil},
		"a conflict":                 {apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("field is immutable")), nil},
		"no answer":                  {errors.New("field is immutable"), nil},
	} {
		fields, ok := immutableFields(test.err)
		if ok != (test.want != nil) || ok && !slices.Equal(fields, test.want) {
			t.Errorf("%s: %q, %t", name, fields, ok)
		}
	}
}

func TestReportSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	result := func(name string, outcome ChildOutcome) Result {
		return Result{
			Kind: kind, Key: kube.Key{Namespace: "shop", Name: name}, Desired: true, Outcome: outcome,
			Readiness: readiness.State{Status: readiness.Current},
		}
	}
	ready, slow, waits, failed := result("ready", Unchanged), result("slow", Updated), result("waits", Waiting), result("failed", Failed)
	slow.Readiness = readiness.State{Status: readiness.InProgress, Message: "1 of 2 replicas are available"}
	waits.Waits = "wave 0 is not ready"
	failed.Err = errors.New("apply ConfigMap shop/failed: refused")
	old := result("old", Terminating)
	old.Desired, old.Terminating = false, &Deletion{Since: time.Unix(0, 0), Finalizers: []string{"example.com/a"}}
	report := Report{Results: []Result{ready, slow, waits, failed, old}}
	want := "ConfigMap shop/slow: 1 of 2 replicas are available; ConfigMap shop/waits waits: wave 0 is not ready; " +
		"apply ConfigMap shop/failed: refused"
	if got := report.Pending(); got != want || report.Ready() {
		t.Errorf("ready %t: %s", report.Ready(), got)
	}
	want = "ConfigMap shop/old: it is being deleted since 1970-01-01T00:00:00Z, held by finalizers example.com/a"
	if got := report.Remaining(); got != want || report.AllDeleted() {
		t.Errorf("all deleted %t: %s", report.AllDeleted(), got)
	}
	if report = (Report{Results: []Result{ready, old}}); !report.Ready() || report.Pending() != "" {
		t.Errorf("ready %t: %s", report.Ready(), report.Pending())
	}
	report = Report{Results: slices.Repeat([]Result{slow}, 8)}
	if got := report.Pending(); strings.Count(got, "slow") != 5 || !strings.HasSuffix(got, "and 3 more") {
		t.Error(got)
	}
	pruned := Result{Kind: kind, Outcome: Pruned}
	if report = (Report{Results: []Result{ready, pruned}}); report.Remaining() != "" || !report.Ready() {
		t.Errorf("remaining %q, ready %t", report.Remaining(), report.Ready())
	}
	if report = (Report{OwnerTerminating: true}); report.Ready() || report.Pending() == "" {
		t.Error("an owner that is being deleted is ready")
	}
}

// A child that could not be deleted comes with an error of Apply, so the report is not ready.
func TestReportOfAFailedPruneIsNotReady(t *testing.T) {
	t.Parallel()
	for want, err := range map[readiness.Status]error{readiness.InProgress: errors.New("prune: refused"), readiness.Failed: refusal()} {
		report := Report{Results: []Result{
			{Desired: true, Outcome: Unchanged, Readiness: readiness.State{Status: readiness.Current}}, {Outcome: Failed, Err: err}, {Outcome: Foreign},
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
		"not applied":      {Result{Outcome: Failed, Err: errors.New("refused")}, readiness.InProgress},
		"cannot change":    {Result{Outcome: Failed, Err: &ImmutableError{Err: refusal(metav1.StatusCause{})}}, readiness.Failed},
		"somebody else's":  {Result{Outcome: Foreign, Err: &ForeignError{}}, readiness.Failed},
		"earlier owner's":  {Result{Outcome: Foreign, Err: &ForeignError{Former: true}}, readiness.InProgress},
		"not accepted":     {Result{Outcome: Failed, Err: refusal()}, readiness.Failed},
		"waits":            {Result{Outcome: Waiting}, readiness.InProgress},
		"is being deleted": {Result{Outcome: Terminating, Terminating: &Deletion{}}, readiness.InProgress},
	} {
		test.result.Desired = true
		states := Report{Results: []Result{test.result, {Outcome: Pruned}}}.States()
		if len(states) != 1 || states[0].Status != test.want || (states[0].Message == "") != (test.want == readiness.Current) {
			t.Errorf("%s: %+v", name, states)
		}
	}
	for want, err := range map[readiness.Status]error{readiness.InProgress: errors.New("the list failed"), readiness.Failed: refusal()} {
		failed := Report{failure: err}
		if states := failed.States(); len(states) != 1 || states[0].Status != want || failed.Ready() || failed.AllDeleted() || failed.Pending() == "" {
			t.Errorf("%v: %+v, ready %t, all deleted %t, pending %q", err, states, failed.Ready(), failed.AllDeleted(), failed.Pending())
		}
	}
	if states := (Report{OwnerTerminating: true}).States(); len(states) != 1 || states[0].Status != readiness.Terminating {
		t.Errorf("%+v", states)
	}
}

// An owner whose former children were searched for is remembered as long as it is handled.
func TestSearchedOwnersExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var owners searchedOwners
		owners.add("idle")
		owners.add("handled")
		for range 4 {
			time.Sleep(minSearchedFor * 3 / 4)
			if !owners.has("handled") {
				t.Fatal("an owner that is handled has expired")
			}
		}
		if owners.has("idle") || len(owners.recent)+len(owners.earlier) > 2 {
			t.Errorf("owners: recent %v, earlier %v", owners.recent, owners.earlier)
		}
	})
}

func TestPlanOfNothing(t *testing.T) {
	t.Parallel()
	if got, want := (Plan{Owner: "WebApp shop/web"}).String(), "WebApp shop/web: no children\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	plan := Plan{Owner: "WebApp shop/web", OwnerTerminating: true}
	if got, want := plan.String(), "WebApp shop/web: nothing to do, because it is being deleted\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
