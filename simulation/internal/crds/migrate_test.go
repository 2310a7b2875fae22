package crds_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation/internal/crds"
)

const robotsName = "robots.example.com"

func robotsResource() schema.GroupResource {
	return schema.GroupResource{Group: "example.com", Resource: "robots"}
}

// world is an API server with a definition of Robots. v1 has spec.size, v2 has spec.length, and a conversion renames the
// field.
type world struct {
	*testing.T
	server *apiserver.Server
	// handle handles the nth request, counted from 0, if it is not nil. Requests for discovery do not count.
	handle func(n int, req *http.Request, do func() (*http.Response, error)) (*http.Response, error)

	// broken decides on the objects whose conversion fails, if it is not nil.
	broken func(name string) bool

	mu       sync.Mutex
	requests int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, new(crds.Compiler))
}

// newWorldWith returns a world that shares the work of compiling schemas.
func newWorldWith(t *testing.T, compiler *crds.Compiler) *world {
	t.Helper()
	w := &world{T: t}
	rename := func(obj *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error) {
		if w.broken != nil && w.broken(obj.GetName()) {
			return nil, errors.New("conversion webhook failed: the cause")
		}
		names := map[string]string{"v1": "size", "v2": "length"}
		from := names[obj.GroupVersionKind().Version]
		if value, ok, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", from); ok {
			unstructured.RemoveNestedField(obj.Object, "spec", from)
			if err := unstructured.SetNestedField(obj.Object, value, "spec", names[to.Version]); err != nil {
				return nil, err
			}
		}
		obj.SetAPIVersion(to.String())
		return obj, nil
	}
	webhook := func(_ *apiserver.Server, d *apiextensionsv1.CustomResourceDefinition) crds.Converter {
		if d.Spec.Conversion.Strategy != apiextensionsv1.WebhookConverter {
			return nil
		}
		return rename
	}
	server, err := apiserver.New(apiserver.Config{Kinds: []*apiserver.Kind{compiler.Definitions(webhook)}, NamespacesExist: true})
	if err != nil {
		t.Fatal(err)
	}
	w.server = server
	return w
}

// RoundTrip implements http.RoundTripper.
func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	do := func() (*http.Response, error) { return w.server.Transport().RoundTrip(req) }
	if !strings.Contains(req.URL.Path, "/robots") && !strings.Contains(req.URL.Path, "/customresourcedefinitions") {
		return do()
	}
	w.mu.Lock()
	n, handle := w.requests, w.handle
	w.requests++
	w.mu.Unlock()
	if handle == nil {
		return do()
	}
	return handle(n, req, do)
}

// client returns the client of a new process.
func (w *world) client(change ...func(*client.Config)) *client.Client {
	w.Helper()
	config := w.server.RESTConfig("program")
	config.Transport = w
	cluster, err := kube.Connect(config)
	if err != nil {
		w.Fatal(err)
	}
	cluster.SetLogger(slog.New(slog.DiscardHandler))
	clientConfig := client.Config{Cluster: cluster, FieldOwner: "program"}
	for _, c := range change {
		c(&clientConfig)
	}
	c, err := client.New(clientConfig)
	if err != nil {
		w.Fatal(err)
	}
	return c
}

func robotVersion(name, schemaText string, change ...func(*apiextensionsv1.CustomResourceDefinitionVersion)) apiextensionsv1.CustomResourceDefinitionVersion {
	props := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for field := range strings.FieldsSeq(schemaText) {
		props.Properties[field] = apiextensionsv1.JSONSchemaProps{Type: "integer"}
	}
	v := apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Schema: &apiextensionsv1.CustomResourceValidation{
		OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": props}},
	}}
	for _, c := range change {
		c(&v)
	}
	return v
}

func stored(v *apiextensionsv1.CustomResourceDefinitionVersion)     { v.Storage = true }
func deprecated(v *apiextensionsv1.CustomResourceDefinitionVersion) { v.Deprecated = true }

// robotsOf returns a definition. It has a conversion webhook if it has several versions.
func robotsOf(versions ...apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{}
	d.Name = robotsName
	d.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.NamespaceScoped, Versions: versions,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Robot", ListKind: "RobotList", Plural: "robots", Singular: "robot"},
	}
	if len(versions) > 1 {
		d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "default", Name: "hooks"}},
		}}
	}
	return d
}

// The definitions of four releases of a program.
func release1() *apiextensionsv1.CustomResourceDefinition {
	return robotsOf(robotVersion("v1", "size color", stored))
}

func release2() *apiextensionsv1.CustomResourceDefinition {
	return robotsOf(robotVersion("v1", "size color", stored), robotVersion("v2", "length color"))
}

func release3() *apiextensionsv1.CustomResourceDefinition {
	return robotsOf(robotVersion("v1", "size color", deprecated), robotVersion("v2", "length color", stored))
}

func release4() *apiextensionsv1.CustomResourceDefinition {
	return robotsOf(robotVersion("v2", "length color", stored))
}

// ensure ensures a definition as another client.
func (w *world) ensure(d *apiextensionsv1.CustomResourceDefinition, options ...crd.EnsureOption) error {
	w.Helper()
	_, err := crd.Ensure(w.Context(), w.other(), []*apiextensionsv1.CustomResourceDefinition{d}, options...)
	return err
}

// other returns a client whose requests are not counted.
func (w *world) other() *client.Client {
	w.Helper()
	cluster, err := kube.Connect(w.server.RESTConfig("other"))
	if err != nil {
		w.Fatal(err)
	}
	cluster.SetLogger(slog.New(slog.DiscardHandler))
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "program"})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// create creates Robots in v1.
func (w *world) create(n int) {
	w.Helper()
	c := w.other()
	for i := range n {
		obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(i), "color": int64(-i)}}}
		obj.SetAPIVersion("example.com/v1")
		obj.SetKind("Robot")
		obj.SetNamespace("default")
		obj.SetName(fmt.Sprintf("r%04d", i))
		if _, err := client.Create(w.Context(), c, obj); err != nil {
			w.Fatal(err)
		}
	}
}

// prepare installs release 1, creates Robots and installs the releases 2 and 3.
func (w *world) prepare(n int) {
	w.Helper()
	if err := w.ensure(release1()); err != nil {
		w.Fatal(err)
	}
	w.create(n)
	for _, d := range []*apiextensionsv1.CustomResourceDefinition{release2(), release3()} {
		if err := w.ensure(d); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) definition() *apiextensionsv1.CustomResourceDefinition {
	w.Helper()
	for _, obj := range w.server.Objects(schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}) {
		if obj.GetName() == robotsName {
			return obj.(*apiextensionsv1.CustomResourceDefinition)
		}
	}
	w.Fatal("the definition is missing")
	return nil
}

// storedIn returns the numbers of objects by the version in which they are stored.
func (w *world) storedIn() map[string]int {
	found := map[string]int{}
	for _, obj := range w.server.Objects(robotsResource()) {
		found[obj.GetObjectKind().GroupVersionKind().Version]++
	}
	return found
}

// checkStored fails the test if an object is stored in a version that status.storedVersions lacks.
func (w *world) checkStored(when string) {
	w.Helper()
	for version := range w.storedIn() {
		if stored := w.definition().Status.StoredVersions; !slices.Contains(stored, version) {
			w.Errorf("%s: objects are stored in %s, and status.storedVersions is %q", when, version, stored)
		}
	}
}

// checkMigrated fails the test if the n objects of create are not all stored unchanged in v2.
func (w *world) checkMigrated(when string, n int) {
	w.Helper()
	if diff := cmp.Diff([]string{"v2"}, w.definition().Status.StoredVersions); diff != "" {
		w.Errorf("%s: status.storedVersions (-want +got):\n%s", when, diff)
	}
	if len(w.definition().Annotations) > 0 {
		w.Errorf("%s: the definition has the annotations %v", when, w.definition().Annotations)
	}
	objects := w.server.Objects(robotsResource())
	if len(objects) != n {
		w.Errorf("%s: %d objects are left, want %d", when, len(objects), n)
	}
	for i, obj := range objects {
		want := map[string]any{"length": int64(i), "color": int64(-i)}
		got := obj.(*unstructured.Unstructured)
		if diff := cmp.Diff(want, got.Object["spec"]); diff != "" || got.GetAPIVersion() != "example.com/v2" || got.GetGeneration() != 1 {
			w.Errorf("%s: object %s is stored in %s, generation %d (-want +got):\n%s", when, got.GetName(), got.GetAPIVersion(), got.GetGeneration(), diff)
		}
	}
}

var errKilled = errors.New("the process was killed")

// killAt makes the process end at the nth request: before the API server has it, or before the process has the response.
// It returns the context of the process, and whether the kill happened.
func (w *world) killAt(n int, afterwards bool) (ctx context.Context, happened func() bool) {
	ctx, cancel := context.WithCancelCause(w.Context())
	dead := false
	w.requests = 0
	w.handle = func(at int, _ *http.Request, do func() (*http.Response, error)) (*http.Response, error) {
		if at < n {
			return do()
		}
		if at == n && afterwards {
			if res, err := do(); err == nil {
				_ = res.Body.Close()
			}
		}
		dead = true
		cancel(errKilled)
		return nil, errKilled
	}
	return ctx, func() bool { return dead }
}

// Each release of the program is killed at each of its requests, and then runs again.
func TestStorageMigrationKilledBetweenAnyTwoWrites(t *testing.T) {
	t.Parallel()
	const objects = 4
	releases := []struct {
		name    string
		d       *apiextensionsv1.CustomResourceDefinition
		migrate bool
	}{
		{"version added", release2(), false}, {"storage version changed", release3(), true}, {"version removed", release4(), false},
	}
	for killed, release := range releases {
		for _, afterwards := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/response lost %t", release.name, afterwards), func(t *testing.T) {
				t.Parallel()
				points, compiler := 0, new(crds.Compiler)
				for ended := false; !ended; points++ {
					synctest.Test(t, func(t *testing.T) {
						w := newWorldWith(t, compiler)
						if err := w.ensure(release1()); err != nil {
							t.Fatal(err)
						}
						w.create(objects)
						run := func(ctx context.Context, i int) error {
							c := w.client()
							if _, err := crd.Ensure(ctx, c, []*apiextensionsv1.CustomResourceDefinition{releases[i].d}); err != nil || !releases[i].migrate {
								return err
							}
							_, err := crd.Migrate(ctx, c, robotsName, crd.Pace(1))
							return err
						}
						for i := range releases {
							when := fmt.Sprintf("%s killed at request %d", releases[i].name, points)
							if i == killed {
								ctx, happened := w.killAt(points, afterwards)
								err := run(ctx, i)
								ended = !happened()
								w.checkStored(when)
								if w.handle = nil; (err == nil) != ended {
									t.Errorf("%s: the error is %v", when, err)
								}
							}
							if err := run(t.Context(), i); err != nil {
								t.Fatalf("%s: the next run returns %v", when, err)
							}
							w.checkStored(when)
							if releases[i].migrate {
								w.checkMigrated(when, objects)
							}
						}
						w.checkMigrated("the end", objects)
					})
				}
				if least := 3; points < least {
					t.Errorf("%d kill points, want %d", points, least)
				}
				t.Logf("%d kill points", points-1)
			})
		}
	}
}

// A later call skips the objects that an earlier call has written.
func TestStorageMigrationContinuesAfterKill(t *testing.T) {
	t.Parallel()
	inWorld(t, 10, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), 12500*time.Millisecond)
		defer cancel()
		if m, err := crd.Migrate(ctx, w.client(), robotsName, crd.Pace(1)); !errors.Is(err, context.DeadlineExceeded) || m.Rewritten != 8 {
			t.Fatalf("the first call: %v, %v", m, err)
		}
		began := time.Now()
		m, err := crd.Migrate(t.Context(), w.client(), robotsName, crd.Pace(1))
		if elapsed := time.Since(began); err != nil || m.Rewritten != 2 || m.Done != 10 || m.Total != 10 || elapsed != time.Second {
			t.Errorf("the second call: %v, %v after %s", m, err, elapsed)
		}
		w.checkMigrated("after the second call", 10)
		w.requests = 0
		if m, err := crd.Migrate(t.Context(), w.client(), robotsName); err != nil || m.Rewritten != 0 || w.requests != 1 {
			t.Errorf("the third call: %v, %v, %d requests", m, err, w.requests)
		}
	})
}
