package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// gadgets returns two versions of a custom resource, which is stored as the second one. The first version has the size in
// spec.size, the second in spec.replicas.
func gadgets() (v1, v2 *Kind) {
	gvk := func(version string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Gadget"}
	}
	v1, v2 = Custom(gvk("v1"), "gadgets"), Custom(gvk("v2"), "gadgets")
	v1.Storage, v1.Status, v2.Status = v2, true, true
	rename := func(to *Kind, name string) func(Object) (Object, error) {
		return func(obj Object) (Object, error) {
			u := obj.(*unstructured.Unstructured).DeepCopy()
			u.SetGroupVersionKind(to.GroupVersionKind)
			if spec, ok := u.Object["spec"].(map[string]any); ok {
				for _, other := range []string{"size", "replicas"} {
					if value, exists := spec[other]; exists && other != name {
						delete(spec, other)
						spec[name] = value
					}
				}
			}
			return u, nil
		}
	}
	v1.From, v2.From = rename(v1, "size"), rename(v2, "replicas")
	return v1, v2
}

var gadgetResource = schema.GroupResource{Group: "example.com", Resource: "gadgets"} //nolint:gochecknoglobals // a constant

const (
	gadgetsV1 = "/apis/example.com/v1/namespaces/shop/gadgets"
	gadgetsV2 = "/apis/example.com/v2/namespaces/shop/gadgets"
)

func serveGadgets(t *testing.T, s *Server) {
	t.Helper()
	v1, v2 := gadgets()
	if err := s.Serve(schema.GroupResource{Group: "example.com", Resource: "gadgets"}, v1, v2); err != nil {
		t.Fatal(err)
	}
}

func TestVersionsOfOneResource(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	serveGadgets(t, s)
	watch, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://apiserver.invalid"+gadgetsV1+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.Transport().RoundTrip(watch)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()

	mustSend(t, s, "POST", gadgetsV1, `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"a"},"spec":{"size":1}}`)
	if text := mustSend(t, s, "GET", gadgetsV2+"/a", ""); !strings.Contains(text, `"apiVersion":"example.com/v2"`) || !strings.Contains(text, `"replicas":1`) {
		t.Errorf("version 2: %s", text)
	}
	// The generation counts changes in any version, and a conflict is one in both.
	patched := mustSend(t, s, "PATCH", gadgetsV2+"/a", `{"spec":{"replicas":2}}`, "Content-Type", "application/merge-patch+json")
	if !strings.Contains(patched, `"generation":2`) || !strings.Contains(patched, `"replicas":2`) {
		t.Errorf("patched: %s", patched)
	}
	if code, text := send(t, s, "PUT", gadgetsV1+"/a", `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"a","resourceVersion":"1001"},"spec":{"size":1}}`); code != http.StatusConflict {
		t.Errorf("an update with an old version: %d %s", code, text)
	}
	// A write that changes nothing in the stored version is no write.
	second := mustSend(t, s, "PATCH", gadgetsV1+"/a", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json")
	if decodeMetadata(t, second).ResourceVersion != decodeMetadata(t, patched).ResourceVersion {
		t.Errorf("a patch without effect is a write: %s", second)
	}
	applied := mustSend(t, s, "PATCH", gadgetsV1+"/a?fieldManager=m&force=true", `{"apiVersion":"example.com/v1","kind":"Gadget","spec":{"size":3}}`,
		"Content-Type", "application/apply-patch+yaml")
	if !strings.Contains(applied, `"size":3`) {
		t.Errorf("applied: %s", applied)
	}
	if code, text := send(t, s, "PATCH", gadgetsV2+"/a?fieldManager=other", `{"apiVersion":"example.com/v2","kind":"Gadget","spec":{"replicas":4}}`,
		"Content-Type", "application/apply-patch+yaml"); code != http.StatusConflict || !strings.Contains(text, `.spec.size`) {
		t.Errorf("an apply by another manager in the other version: %d %s", code, text)
	}
	if text := mustSend(t, s, "GET", gadgetsV1, ""); !strings.Contains(text, `"size":3`) {
		t.Errorf("list: %s", text)
	}
	mustSend(t, s, "DELETE", gadgetsV2+"/a", "")

	lines := bufio.NewScanner(events.Body)
	for _, want := range []string{"ADDED 1", "MODIFIED 2", "MODIFIED 3", "DELETED 3"} {
		if !lines.Scan() {
			t.Fatalf("no event %s: %v", want, lines.Err())
		}
		var e struct {
			Type   string
			Object struct {
				APIVersion string
				Spec       struct{ Size int }
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(e.Type, " ", e.Object.Spec.Size); got != want || e.Object.APIVersion != "example.com/v1" {
			t.Errorf("event %s, want %s: %s", got, want, lines.Text())
		}
	}
}

func TestServeAndWithdrawAtRunTime(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	if code, _ := send(t, s, "GET", gadgetsV1, ""); code != http.StatusNotFound {
		t.Fatalf("before Serve: %d", code)
	}
	before := s.Fork()
	serveGadgets(t, s)
	mustSend(t, s, "POST", gadgetsV1, `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"a"},"spec":{"size":1}}`)
	if text := mustSend(t, s, "GET", "/apis/example.com/v2", ""); !strings.Contains(text, "gadgets/status") {
		t.Errorf("discovery: %s", text)
	}
	serveGadgets(t, s) // another definition: stored objects stay, and are converted
	if text := mustSend(t, s, "GET", gadgetsV2+"/a", ""); !strings.Contains(text, `"replicas":1`) {
		t.Errorf("after another definition: %s", text)
	}
	fork := s.Fork()
	if err := s.Serve(schema.GroupResource{Group: "example.com", Resource: "gadgets"}); err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]*Server{"withdrawn": s, "a fork from before": before} {
		if code, _ := send(t, other, "GET", gadgetsV2+"/a", ""); code != http.StatusNotFound {
			t.Errorf("%s: %d", name, code)
		}
	}
	mustSend(t, fork, "GET", gadgetsV2+"/a", "")
	serveGadgets(t, s)
	if code, _ := send(t, s, "GET", gadgetsV2+"/a", ""); code != http.StatusNotFound {
		t.Errorf("a withdrawn object came back: %d", code)
	}
}

func TestServeRejectsKindsOfAnotherResource(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	v1, _ := gadgets()
	other, _ := gadgets()
	gadgets := schema.GroupResource{Group: "example.com", Resource: "gadgets"}
	for name, err := range map[string]error{
		"another resource":    s.Serve(schema.GroupResource{Resource: "gadgets"}, v1),
		"two storage kinds":   s.Serve(gadgets, v1, other),
		"one kind, two times": s.Serve(gadgets, v1, v1),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestObserveCallsInOrderOfWrites(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var seen []string
	s.Observe(func(c Change) {
		text := c.Kind.Kind
		for _, obj := range []Object{c.Old, c.Object} {
			if obj == nil {
				text += " -"
				continue
			}
			text += " " + obj.GetName()
		}
		seen = append(seen, text)
		if c.Object != nil && c.Object.GetName() == "a" && c.Old == nil { // an observer may write
			mustSend(t, s, "POST", configMapsPath, `{"metadata":{"name":"b"}}`)
			seen = append(seen, "returned")
		}
	})
	mustSend(t, s, "POST", configMapsPath, `{"metadata":{"name":"a"}}`)
	mustSend(t, s, "DELETE", configMapsPath+"/a", "")
	mustSend(t, s.Fork(), "DELETE", configMapsPath+"/b", "") // a fork has no observers
	if want := []string{"ConfigMap - a", "returned", "ConfigMap - b", "ConfigMap a -"}; !slices.Equal(seen, want) {
		t.Errorf("observed %q, want %q", seen, want)
	}
}

// A kind with a grace period: another client ends the deletion with a grace period of 0.
func TestGracefulDeletion(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		requested string // options of the first deletion
		want      string // the grace period of the object that remains; "": it is deleted
		second    string // options of the second deletion
		then      string
	}{
		"default period":            {``, "30", `{"gracePeriodSeconds":0}`, ""},
		"zero":                      {`{"gracePeriodSeconds":0}`, "", ``, ""},
		"shortened":                 {``, "30", `{"gracePeriodSeconds":5}`, "5"},
		"not prolonged":             {`{"gracePeriodSeconds":5}`, "5", `{"gracePeriodSeconds":60}`, "5"},
		"negative means one second": {`{"gracePeriodSeconds":-1}`, "1", ``, "1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods := Builtin[corev1.Pod](corev1.SchemeGroupVersion.WithKind("Pod"), "pods", corev1.AddToScheme)
			pods.Rules.GracePeriod = func(_ Object, requested *int64) int64 {
				if requested == nil {
					return 30
				}
				return *requested
			}
			s := newServer(t, func(c *Config) { c.Kinds = append(c.Kinds, pods) })
			const path = "/api/v1/namespaces/shop/pods"
			mustSend(t, s, "POST", path, `{"metadata":{"name":"a"}}`)
			for i, step := range [][2]string{{test.requested, test.want}, {test.second, test.then}} {
				code, answer := send(t, s, "DELETE", path+"/a", step[0])
				_, text := send(t, s, "GET", path+"/a", "")
				var metadata metav1.ObjectMeta
				if strings.Contains(text, `"kind":"Pod"`) {
					metadata = decodeMetadata(t, text)
				}
				got := ""
				if metadata.DeletionGracePeriodSeconds != nil {
					got = fmt.Sprint(*metadata.DeletionGracePeriodSeconds)
				}
				if got != step[1] || got != "" && metadata.DeletionTimestamp == nil {
					t.Errorf("deletion %d: %d %s, grace period %q, want %q: %s", i+1, code, answer, got, step[1], text)
				}
			}
		})
	}
}

// Parallel patches of one object: each is applied to the result of another one.
func TestParallelPatchesAreAllApplied(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	putObjects(t, s, 1)
	var patches sync.WaitGroup
	for i := range 16 {
		patches.Go(func() {
			code, text := send(t, s, "PATCH", configMapsPath+"/cm-0000", fmt.Sprintf(`{"data":{"k%d":"v"}}`, i), "Content-Type", "application/merge-patch+json")
			if code != http.StatusOK {
				t.Errorf("patch: %d %s", code, text)
			}
		})
	}
	patches.Wait()
	var stored corev1.ConfigMap
	if err := json.Unmarshal([]byte(mustSend(t, s, "GET", configMapsPath+"/cm-0000", "")), &stored); err != nil {
		t.Fatal(err)
	}
	if len(stored.Data) != 17 {
		t.Errorf("%d keys, want 17: %v", len(stored.Data), stored.Data)
	}
}

// A kind that Serve keeps converts managed fields from the versions that Serve adds.
func TestServeAddsVersionToKind(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	v1, v2 := gadgets()
	for _, kinds := range [][]*Kind{{v2}, {v1, v2}} {
		if err := s.Serve(gadgetResource, kinds...); err != nil {
			t.Fatal(err)
		}
	}
	const object = `{"apiVersion":"example.com/%s","kind":"Gadget","metadata":{"name":"a"},"spec":{"%s":%d}}`
	mustSend(t, s, "PATCH", gadgetsV1+"/a?fieldManager=one", fmt.Sprintf(object, "v1", "size", 3), "Content-Type", "application/apply-patch+yaml")
	if code, text := send(t, s, "PATCH", gadgetsV2+"/a?fieldManager=two", fmt.Sprintf(object, "v2", "replicas", 4),
		"Content-Type", "application/apply-patch+yaml"); code != http.StatusConflict {
		t.Errorf("an apply by another manager: %d %s, want a conflict", code, text)
	}
}

// Objects in the form of kinds that are no longer served are not kept.
func TestServeRemovesViewsOfPreviousKinds(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	serveGadgets(t, s)
	mustSend(t, s, "POST", gadgetsV1, `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"a"}}`)
	for range 5 {
		v1, v2 := gadgets()
		if err := s.Serve(gadgetResource, v1, v2); err != nil {
			t.Fatal(err)
		}
		mustSend(t, s, "GET", gadgetsV1+"/a", "")
		mustSend(t, s, "GET", gadgetsV2+"/a", "")
	}
	views := 0
	for v := s.tables[gadgetResource].records[0].views.Load(); v != nil; v = v.next {
		views++
	}
	if views != 2 {
		t.Errorf("%d views, want those of the 2 served kinds", views)
	}
}

// Requests in a version that is not stored: kinds whose objects stay when they are deleted, and conversions that fail.
func TestConversionOfStoredObjects(t *testing.T) {
	t.Parallel()
	const object = `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"a"},"spec":{"size":%d}}`
	requests := map[string][3]string{
		"delete": {"DELETE", gadgetsV1 + "/a"}, "get": {"GET", gadgetsV1 + "/a"}, "list": {"GET", gadgetsV1}, "delete all": {"DELETE", gadgetsV1},
		"update": {"PUT", gadgetsV1 + "/a", fmt.Sprintf(object, 2)}, "patch": {"PATCH", gadgetsV1 + "/a", `{"spec":{"size":3}}`},
		"watch": {"GET", gadgetsV1 + "?watch=true&resourceVersion=1000"},
	}
	tests := map[string]struct {
		change   func(v1, v2 *Kind)
		requests []string
		want     string // in each response
	}{
		"the object stays": {
			func(v1, _ *Kind) { v1.Rules.Terminate = func(obj Object) { obj.SetFinalizers([]string{"a/b"}) } },
			[]string{"delete"},
			`"finalizers":["a/b"]`,
		},
		"failing": {
			func(v1, _ *Kind) { v1.From = func(Object) (Object, error) { return nil, errors.New("no conversion") } },
			[]string{"get", "list", "watch", "update", "patch", "delete", "delete all"},
			"no conversion",
		},
		"another name": {func(_, v2 *Kind) {
			from := v2.From
			v2.From = func(obj Object) (Object, error) {
				obj, err := from(obj)
				obj.SetName("b")
				return obj, err
			}
		}, []string{"patch"}, "changed the name"},
		"missing": {func(_, v2 *Kind) { v2.From = nil }, []string{"patch"}, "no function From"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			serveGadgets(t, s)
			mustSend(t, s, "POST", gadgetsV1, fmt.Sprintf(object, 1))
			mustSend(t, s, "POST", gadgetsV1, strings.Replace(fmt.Sprintf(object, 1), `"a"`, `"c"`, 1))
			v1, v2 := gadgets()
			test.change(v1, v2)
			if err := s.Serve(gadgetResource, v1, v2); err != nil {
				t.Fatal(err)
			}
			for _, verb := range test.requests {
				r := requests[verb]
				contentType := map[string]string{"PATCH": "application/merge-patch+json"}[r[0]]
				if _, text := send(t, s, r[0], r[1], r[2], "Content-Type", contentType); !strings.Contains(text, test.want) || strings.Count(text, "\n") != 1 {
					t.Errorf("%s: %s, want one line with %s", verb, text, test.want)
				}
			}
		})
	}
}

// A resource that is withdrawn during a request gets no objects and no watches.
func TestWithdrawDuringRequest(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	serveGadgets(t, s)
	s.SetAdmission(reviewer{noReview, func(context.Context, *Review) error { return s.Serve(gadgetResource) }})
	s.Observe(func(c Change) { t.Errorf("observed %v", c) })
	if code, text := send(t, s, "POST", gadgetsV1, `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"a"}}`); code != http.StatusNotFound {
		t.Errorf("create: %d %s, want 404", code, text)
	}
}

// Serve and requests for the subresource scale run at once.
func TestServeDuringScale(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	v1, v2 := gadgets()
	v1.Scale = &Scale{Replicas: ".spec.size", StatusReplicas: ".status.size"}
	v2.Scale = &Scale{Replicas: ".spec.replicas", StatusReplicas: ".status.replicas"}
	if err := s.Serve(gadgetResource, v1, v2); err != nil {
		t.Fatal(err)
	}
	mustSend(t, s, "POST", gadgetsV1, `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"a"},"spec":{"size":1}}`)
	var requests sync.WaitGroup
	requests.Go(func() {
		for range 5 {
			if err := s.Serve(gadgetResource, v1, v2); err != nil {
				t.Error(err)
			}
		}
	})
	for range 5 {
		code, text := send(t, s, "PUT", gadgetsV1+"/a/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":"x"}}`)
		if code != http.StatusBadRequest {
			t.Errorf("a scale with a text: %d %s", code, text)
		}
	}
	requests.Wait()
}

// externalGadgets returns the versions of a resource whose conversion to v1 is external: it counts the calls, and fails while
// broken is true.
func externalGadgets() (v1, v2 *Kind, calls *atomic.Int32, broken *atomic.Bool) {
	v1, v2 = gadgets()
	calls, broken = new(atomic.Int32), new(atomic.Bool)
	from := v1.From
	v1.External, v2.External = true, true
	v1.From = func(obj Object) (Object, error) {
		calls.Add(1)
		if broken.Load() {
			return nil, errors.New("no conversion")
		}
		return from(obj)
	}
	return v1, v2, calls, broken
}

// Lists use the first conversion of an object. A get converts it again, unless it may be served from a cache.
func TestExternalConversions(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	v1, v2, calls, broken := externalGadgets()
	if err := s.Serve(gadgetResource, v1, v2); err != nil {
		t.Fatal(err)
	}
	mustSend(t, s, "POST", gadgetsV2, `{"apiVersion":"example.com/v2","kind":"Gadget","metadata":{"name":"a"},"spec":{"replicas":1}}`)
	for _, step := range []struct {
		path  string
		calls int32
	}{{gadgetsV1, 1}, {gadgetsV1, 1}, {gadgetsV1 + "/a", 2}, {gadgetsV1 + "/a", 3}, {gadgetsV1 + "/a?resourceVersion=0", 3}, {gadgetsV2 + "/a", 3}} {
		if mustSend(t, s, "GET", step.path, ""); calls.Load() != step.calls {
			t.Errorf("get %s: %d conversions, want %d", step.path, calls.Load(), step.calls)
		}
	}
	mustSend(t, s, "POST", gadgetsV2, `{"apiVersion":"example.com/v2","kind":"Gadget","metadata":{"name":"b"},"spec":{"replicas":1}}`)
	lines, body := openWatch(t, t.Context(), s, gadgetsV1+"?watch=true&resourceVersion="+s.Version())
	defer body.Close()
	for _, replicas := range []int{2, 3} { // the state before the first change is not converted
		mustSend(t, s, "PATCH", gadgetsV2+"/b", fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas), "Content-Type", "application/merge-patch+json")
	}
	for _, size := range []int{2, 3} {
		if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, fmt.Sprintf(`"size":%d`, size)) {
			t.Errorf("event %s, error %v", line, err)
		}
	}
	if calls.Load() != 5 {
		t.Errorf("%d conversions with a watch, want 5", calls.Load())
	}
	broken.Store(true)
	mustSend(t, s, "GET", gadgetsV1, "")
	if code, text := send(t, s, "GET", gadgetsV1+"/a", ""); code != http.StatusInternalServerError || !strings.Contains(text, `"message":"no conversion"`) {
		t.Errorf("get while conversions fail: %d %s", code, text)
	}

	// A fork that serves the resource itself converts the shared objects for itself, and keeps nothing in them.
	fork := s.Fork()
	v1, v2, calls, _ = externalGadgets()
	if err := fork.Serve(gadgetResource, v1, v2); err != nil {
		t.Fatal(err)
	}
	mustSend(t, fork, "GET", gadgetsV1, "")
	if calls.Load() != 2 {
		t.Errorf("%d conversions in the fork, want one for each object", calls.Load())
	}
	if views := s.tables[gadgetResource].records[0].views.Load(); views.next != nil {
		t.Errorf("the fork left a view of version %s in a shared object", views.record.kind.Version)
	}
}

// An event whose object cannot be converted is sent later, also if it has left the history by then.
func TestWatchDelaysExternalConversions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		v1, v2, calls, broken := externalGadgets()
		if err := s.Serve(gadgetResource, v1, v2); err != nil {
			t.Fatal(err)
		}
		lines, body := openWatch(t, t.Context(), s, gadgetsV1+"?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600")
		defer body.Close()
		broken.Store(true)
		for i, name := range []string{"a", "b"} {
			mustSend(t, s, "POST", gadgetsV2, fmt.Sprintf(`{"apiVersion":"example.com/v2","kind":"Gadget","metadata":{"name":%q},"spec":{"replicas":%d}}`, name, i))
		}
		var read sync.WaitGroup
		read.Go(func() {
			for _, want := range []string{"initial-events-end", `"ADDED"`, `"ADDED"`, `"BOOKMARK"`} {
				if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, want) {
					t.Errorf("event %s, error %v, want %s", line, err, want)
				}
			}
		})
		time.Sleep(10 * time.Minute)
		s.Compact()
		if calls.Load() < 10 || calls.Load() > 40 {
			t.Errorf("%d attempts in ten minutes, want one in 30 s, and one with each bookmark", calls.Load())
		}
		broken.Store(false)
		start := time.Now()
		read.Wait()
		if took := time.Since(start); took > 2*time.Minute {
			t.Errorf("the events and a bookmark took %s", took)
		}
	})
}
