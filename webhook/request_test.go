package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/client"
)

// mapFunc is a function for ConfigMaps.
type mapFunc = Func[*corev1.ConfigMap]

// bothHooks returns a validating and a mutating hook of a function.
func bothHooks(f mapFunc) map[string]Hook {
	return map[string]Hook{"validating": Validating(mapsOptions(), f), "mutating": Mutating(mapsOptions(), f)}
}

// accepts is the check of k8s.io/apiserver/pkg/admission/attributes.go for the key of an audit annotation, which drops
// others.
func accepts(key string) bool {
	key = hookName + "/" + key
	return len(strings.Split(key, "/")) == 2 && len(validation.IsQualifiedName(key)) == 0
}

// A response has the audit annotations of all functions, also that of a rejection and of a dry run. A key that the API
// server would drop is an error that leaves the failure policy to decide.
func TestAuditAnnotations(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"checked", "A_b.c-1", strings.Repeat("x", 63), strings.Repeat("x", 64), "", "a/b", "/a", "a/", "-a", "a-", "a b", "ä", "a\n", ".",
	} {
		for name, rejection := range map[string]error{"admitted": nil, "rejected": errors.New("no")} {
			for kind, hook := range bothHooks(func(_ context.Context, r *Request[*corev1.ConfigMap]) error {
				r.Warn("careful")
				if err := r.AddAuditAnnotation("first", "1"); err != nil {
					return err
				}
				if err := r.AddAuditAnnotation(key, "former"); err != nil {
					return err
				}
				return errors.Join(r.AddAuditAnnotation(key, "2"), rejection)
			}) {
				for _, dryRun := range []bool{false, true} {
					review := mapReview(mapObject)
					review.Request.DryRun = &dryRun
					status, response, text := ask(t, serve(t, hook), review)
					what := fmt.Sprintf("%q, %s, %s, dry run %t", key, name, kind, dryRun)
					if !accepts(key) {
						if status != 500 || !strings.Contains(text, "add an audit annotation: the key ") {
							t.Errorf("%s: status %d %q, want an error", what, status, text)
						}
						continue
					}
					if want := map[string]string{"first": "1", key: "2"}; status != 200 || !maps.Equal(response.AuditAnnotations, want) ||
						response.Allowed != (rejection == nil) || fmt.Sprint(response.Warnings) != "[careful]" {
						t.Errorf("%s: status %d %s: %+v", what, status, text, response)
					}
				}
			}
		}
	}
}

// A function that ignores the error for an invalid key keeps its decision.
func TestInvalidAuditAnnotationKeepsDecision(t *testing.T) {
	t.Parallel()
	for _, decision := range []error{nil, errors.New("no")} {
		for kind, hook := range bothHooks(func(_ context.Context, r *Request[*corev1.ConfigMap]) error {
			_ = r.AddAuditAnnotation("a/b", "1")
			return decision
		}) {
			_, response, text := ask(t, serve(t, hook), mapReview(mapObject))
			if response == nil || response.Allowed != (decision == nil) || len(response.AuditAnnotations) > 0 {
				t.Errorf("%s, %v: %s %+v", kind, decision, text, response)
			}
		}
	}
}

// add returns an operation that sets a value.
func add(path string, value any) client.Operation {
	return client.Operation{Op: "add", Path: path, Value: value}
}

// A patch of a function's own is between the changes of the object before and after it, and later functions get its
// result.
func TestPatchesOfMutators(t *testing.T) {
	t.Parallel()
	var seen []string
	set := func(key string) mapFunc {
		return func(_ context.Context, r *Request[*corev1.ConfigMap]) error {
			seen = append(seen, fmt.Sprint(len(r.Object.Data)))
			r.Object.Data[key] = key
			return nil
		}
	}
	patch := func(operations ...client.Operation) mapFunc {
		return func(_ context.Context, r *Request[*corev1.ConfigMap]) error {
			obj := r.Object
			if err := r.Patch(operations...); err != nil {
				return err
			}
			if obj != r.Object {
				return errors.New("the patch replaced the pointer")
			}
			return nil
		}
	}
	lists := patch(client.Operation{Op: "test", Path: "/later", Value: true}, add("/later", []string{"x"}), add("/later/-", "y"))
	for name, test := range map[string]struct {
		chain      []mapFunc
		want, seen string
	}{
		"only a patch":          {[]mapFunc{patch(add("/data/b", "2"))}, `[{"op":"add","path":"/data/b","value":"2"}]`, ""},
		"no operation":          {[]mapFunc{patch()}, "", ""},
		"a test":                {[]mapFunc{patch(client.Operation{Op: "test", Path: "/later", Value: true})}, `[{"op":"test","path":"/later","value":true}]`, ""},
		"a field without a use": {[]mapFunc{lists}, `[{"op":"test","path":"/later","value":true},{"op":"add","path":"/later","value":["x"]},{"op":"add","path":"/later/-","value":"y"}]`, ""},
		"between changes": {
			[]mapFunc{set("b"), patch(add("/data/c", "c"), client.Operation{Op: "remove", Path: "/data/a"}), set("d")},
			`[{"op":"add","path":"/data/b","value":"b"},{"op":"add","path":"/data/c","value":"c"},{"op":"remove","path":"/data/a","value":null},{"op":"add","path":"/data/d","value":"d"}]`, "1 2",
		},
		"twice": {
			[]mapFunc{patch(add("/data/b", "b")), patch(client.Operation{Op: "copy", From: "/data/b", Path: "/data/c"}), set("a")},
			`[{"op":"add","path":"/data/b","value":"b"},{"op":"copy","path":"/data/c","from":"/data/b","value":null},{"op":"replace","path":"/data/a","value":"a"}]`, "3",
		},
		"of what a change has added": {
			[]mapFunc{set("b"), patch(client.Operation{Op: "move", From: "/data/b", Path: "/data/c"})},
			`[{"op":"add","path":"/data/b","value":"b"},{"op":"move","path":"/data/c","from":"/data/b","value":null}]`, "1",
		},
	} {
		seen = nil
		_, response, text := ask(t, serve(t, Mutating(mapsOptions(), test.chain...)), mapReview(mapObject))
		if response == nil || !response.Allowed || string(response.Patch) != test.want || strings.Join(seen, " ") != test.seen {
			t.Errorf("%s: %s %+v, functions saw %v", name, text, response, seen)
			continue
		}
		if hasType := response.PatchType != nil && *response.PatchType == admissionv1.PatchTypeJSONPatch; hasType != (test.want != "") {
			t.Errorf("%s: the type of the patch is %v", name, response.PatchType)
		}
	}
}

// A patch that the API server could not apply, or not accept, is an error before the response. Nothing has changed then.
func TestPatchesThatCannotBeApplied(t *testing.T) {
	t.Parallel()
	deletion := mapReview(mapObject)
	deletion.Request.Operation, deletion.Request.Object, deletion.Request.OldObject = admissionv1.Delete, deletion.Request.OldObject, deletion.Request.Object
	for name, test := range map[string]struct {
		review     *admissionv1.AdmissionReview
		validating bool
		operations []client.Operation
		want       string
	}{
		"validating":          {validating: true, operations: []client.Operation{add("/data/b", "2")}, want: "the hook is validating"},
		"a deletion":          {review: deletion, operations: []client.Operation{add("/data/b", "2")}, want: "the request has no new object"},
		"missing parent":      {operations: []client.Operation{add("/data/b", "2"), add("/none/b", "2")}, want: "missing"},
		"missing value":       {operations: []client.Operation{{Op: "remove", Path: "/data/none"}}, want: "/data/none"},
		"failed test":         {operations: []client.Operation{add("/data/b", "2"), {Op: "test", Path: "/data/a", Value: "2"}}, want: "/data/a"},
		"unknown operation":   {operations: []client.Operation{{Op: "set", Path: "/data/a"}}, want: "set"},
		"no pointer":          {operations: []client.Operation{add("data", "1")}, want: ""},
		"value without JSON":  {operations: []client.Operation{add("/data/b", func() {})}, want: "encode the operations"},
		"field of other type": {operations: []client.Operation{add("/data", "1")}, want: "decode the result"},
	} {
		f := func(_ context.Context, r *Request[*corev1.ConfigMap]) error {
			if r.Object != nil && !test.validating {
				r.Object.Data["c"] = "3"
			}
			if err := r.Patch(test.operations...); err != nil {
				return err
			}
			return errors.New("no error")
		}
		hook, ignoring := Mutating(mapsOptions(), f), Mutating(mapsOptions(), func(ctx context.Context, r *Request[*corev1.ConfigMap]) error {
			_ = f(ctx, r)
			return nil
		})
		if test.validating {
			hook, ignoring = Validating(mapsOptions(), f), Validating(mapsOptions(), func(ctx context.Context, r *Request[*corev1.ConfigMap]) error {
				_ = f(ctx, r)
				return nil
			})
		}
		review, want := mapReview(mapObject), `[{"op":"add","path":"/data/c","value":"3"}]`
		if test.review != nil {
			review = test.review
		}
		if test.review != nil || test.validating {
			want = ""
		}
		status, _, text := ask(t, serve(t, hook), review)
		if status != 500 || !strings.Contains(text, "patch the object of a request: ") || !strings.Contains(text, test.want) {
			t.Errorf("%s: status %d %q, want %q", name, status, text, test.want)
		}
		if _, response, text := ask(t, serve(t, ignoring), review); response == nil || !response.Allowed || string(response.Patch) != want {
			t.Errorf("%s: a function that ignores the error: %s %+v, want the patch %s", name, text, response, want)
		}
	}
}

// A rejected request has no patch, whatever its functions have changed before.
func TestRejectionsHaveNoPatch(t *testing.T) {
	t.Parallel()
	_, response, text := ask(t, serve(t, Mutating(mapsOptions(), func(_ context.Context, r *Request[*corev1.ConfigMap]) error {
		return errors.Join(r.Patch(add("/data/b", "2")), errors.New("no"))
	})), mapReview(mapObject))
	if response == nil || response.Allowed || response.Patch != nil || response.PatchType != nil {
		t.Errorf("%s %+v", text, response)
	}
}

// The test of a function makes its own Request.
func TestRequestsOfTests(t *testing.T) {
	t.Parallel()
	r := &Request[*corev1.ConfigMap]{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
	r.Warn("a")
	if err := errors.Join(r.AddAuditAnnotation("a", "b"), r.Patch(add("/data", map[string]string{"a": "1"})), r.Patch(add("/data/b", "2"))); err != nil {
		t.Fatal(err)
	}
	if r.Object.Name != "a" || r.Object.Data["a"] != "1" || r.Object.Data["b"] != "2" {
		t.Errorf("the object is %+v", r.Object)
	}
}

// The API server gets the object that the functions made, whatever changes and patches they mix, with the fields that
// the Go type lacks.
func TestPatchesOfRandomChains(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(1, seed)) //nolint:gosec // reproducible
		want := map[string]any{}                 // the fields that the Go type lacks
		var chain []Func[*corev1.ConfigMap]
		var untyped []Func[*unstructured.Unstructured]
		final := map[string]string{"a": "1"}
		for range random.IntN(6) {
			key, value := fmt.Sprint("k", random.IntN(4)), fmt.Sprint(random.IntN(10))
			switch random.IntN(4) {
			case 0:
				final[key] = value
				chain = append(chain, func(_ context.Context, r *Request[*corev1.ConfigMap]) error { r.Object.Data[key] = value; return nil })
				untyped = append(untyped, func(_ context.Context, r *Request[*unstructured.Unstructured]) error {
					return unstructured.SetNestedField(r.Object.Object, value, "data", key)
				})
			case 1:
				delete(final, key)
				chain = append(chain, func(_ context.Context, r *Request[*corev1.ConfigMap]) error { delete(r.Object.Data, key); return nil })
				untyped = append(untyped, func(_ context.Context, r *Request[*unstructured.Unstructured]) error {
					unstructured.RemoveNestedField(r.Object.Object, "data", key)
					return nil
				})
			case 2:
				final[key] = value
				chain = append(chain, func(_ context.Context, r *Request[*corev1.ConfigMap]) error { return r.Patch(add("/data/"+key, value)) })
				untyped = append(untyped, func(_ context.Context, r *Request[*unstructured.Unstructured]) error {
					return r.Patch(add("/data/"+key, value))
				})
			default:
				want[key] = value
				chain = append(chain, func(_ context.Context, r *Request[*corev1.ConfigMap]) error { return r.Patch(add("/"+key, value)) })
				untyped = append(untyped, func(_ context.Context, r *Request[*unstructured.Unstructured]) error {
					return r.Patch(add("/"+key, value))
				})
			}
		}
		want["apiVersion"], want["kind"], want["later"] = "v1", "ConfigMap", true
		want["metadata"], want["data"] = map[string]any{"name": "settings", "namespace": "default"}, final
		if len(chain) == 0 {
			continue
		}
		options := mapsOptions()
		options.Resources[0].Version = "v1"
		for kind, hook := range map[string]Hook{"typed": Mutating(mapsOptions(), chain...), "untyped": Mutating(options, untyped...)} {
			_, response, text := ask(t, serve(t, hook), mapReview(mapObject))
			if response == nil || !response.Allowed {
				t.Fatalf("seed %d, %s: %s", seed, kind, text)
			}
			got := []byte(mapObject)
			if response.Patch != nil {
				patch, err := jsonpatch.DecodePatch(response.Patch)
				if err == nil {
					got, err = patch.Apply(got)
				}
				if err != nil {
					t.Fatalf("seed %d, %s: %v", seed, kind, err)
				}
			}
			encoded, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if !jsonpatch.Equal(got, encoded) {
				t.Errorf("seed %d, %s: got %s, want %s; the patch is %s", seed, kind, got, encoded, response.Patch)
			}
		}
	}
}
