package crd

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/crdtest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// isGone reports whether no definition of that name exists.
func (e env) isGone(name string) bool {
	e.Helper()
	existing, err := client.Exists[*apiextensionsv1.CustomResourceDefinition](e.Context(), e.client, kube.Key{Name: name}, client.OfKind(definitionKind()))
	if err != nil {
		e.Fatal(err)
	}
	return !existing
}

func (e env) wantError(err error, parts ...string) {
	e.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			e.Errorf("the error lacks %q:\n%v", part, err)
		}
	}
}

func TestRemove(t *testing.T) {
	e := newEnv(t)
	d := e.define("Website", e.version("v1", host))
	e.ensure(d)
	if err := crd.Remove(t.Context(), e.client, d.Name); err != nil {
		t.Fatal(err)
	}
	if !e.isGone(d.Name) {
		t.Error("it is not gone")
	}
	if _, err := e.client.Cluster().Resource(t.Context(), definitionKind().GroupVersion().WithKind("CustomResourceDefinition")); err != nil {
		t.Error(err)
	}
	if err := crd.Remove(t.Context(), e.client, d.Name); err != nil {
		t.Errorf("when it is not there: %v", err)
	}
	// The same program can create the definition again.
	e.ensure(d)
	e.create(e.object("Website", "v1", "a", nil))
}

func TestRemoveRejectsDefinitionWithObjects(t *testing.T) {
	e := newEnv(t)
	d := e.define("Website", e.version("v1", host))
	e.ensure(d)
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		e.create(e.object("Website", "v1", name, nil))
	}
	err := crd.Remove(t.Context(), e.client, d.Name)
	if !errors.Is(err, crd.ErrHasObjects) {
		t.Errorf("the error is %v, want ErrHasObjects", err)
	}
	e.wantError(err, d.Name, "6 of them: default/a, default/b, default/c, default/d, default/e, ...")
	if e.live(d.Name).DeletionTimestamp != nil {
		t.Fatal("it is being removed")
	}
	// The objects are not served, but they exist.
	e.edit(d.Name, func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Served = false })
	e.wantError(crd.Remove(t.Context(), e.client, d.Name), "none of its versions is served")

	if err := crd.RemoveWithObjects(t.Context(), e.client, d.Name); err != nil {
		t.Fatal(err)
	}
	if !e.isGone(d.Name) {
		t.Error("it is not gone")
	}
}

// Ensure waits for a terminating definition and then creates it again.
func TestRemoveWaitsForFinalizers(t *testing.T) {
	e := newEnv(t)
	d := e.define("Website", e.version("v1", host))
	e.ensure(d)
	e.create(e.object("Website", "v1", "free", nil))
	release := e.hold(d)
	old := e.live(d.Name)

	var running sync.WaitGroup
	running.Go(func() { // waited for below
		ensured, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{d})
		if err != nil {
			t.Error(err)
		} else if ensured[0].Outcome != client.Created || ensured[0].Definition.UID == old.UID {
			t.Errorf("it is %s with uid %s, want another one than %s", ensured[0].Outcome, ensured[0].Definition.UID, old.UID)
		}
	})
	release()
	running.Wait()
	e.create(e.object("Website", "v1", "new", nil))
}

func TestWaitEstablished(t *testing.T) {
	e := newEnv(t)
	d := e.define("Website", e.version("v1", host, stored), e.version("v2", host))
	e.wantError(crd.WaitEstablished(t.Context(), e.client, ""), "it has no name")

	program := newProgram(t)
	var running sync.WaitGroup
	running.Go(func() { // waited for below
		if err := crd.WaitEstablished(t.Context(), program, d.Name); err != nil {
			t.Error(err)
			return
		}
		for _, version := range []string{"v1", "v2"} {
			if _, err := client.Create(t.Context(), program, e.object("Website", version, version, nil)); err != nil {
				t.Error(err)
			}
		}
	})
	e.ensure(d)
	running.Wait()
}

func TestNamesOfAnotherDefinition(t *testing.T) {
	e := newEnv(t)
	first := e.define("Website", e.version("v1", host))
	first.Spec.Names.ShortNames = []string{"web"}
	e.ensure(first)
	second := e.define("Web", e.version("v1", host))
	second.Spec.Names.ShortNames = []string{"web", "w"}
	second.Spec.Names.Singular = "aweb"
	created, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{first, second})
	e.wantError(err, second.Name, `"web" is already in use`, first.Name+` has "web"`)
	if len(created) != 2 || created[0].Outcome != client.Unchanged || created[1].Outcome != client.Created {
		t.Errorf("what was done before the error is %v", created)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error("it took all the time to say so")
	}
	e.wantError(crd.WaitEstablished(t.Context(), e.client, second.Name), second.Name, `"web" is already in use`)
	// After the fix, the status still contains the old conflict, which must be ignored.
	second.Spec.Names.ShortNames = []string{"w"}
	if got := e.ensure(second)[0].Outcome; got != client.Updated {
		t.Errorf("the mended one is %s", got)
	}
	e.create(e.object("Web", "v1", "a", nil))
	// An established definition can have a name conflict too.
	second.Spec.Names.ShortNames = []string{"w", "web"}
	_, err = crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{second})
	e.wantError(err, `"web" is already in use`)
	// A fix with another name that is in use.
	second.Spec.Names.ShortNames = []string{"website"}
	_, err = crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{second})
	e.wantError(err, `"website" is already in use`)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error("it took all the time to say so")
	}
}

// The problems that Compare reports match the effects on objects.
func TestProblemsBreakObjects(t *testing.T) {
	none := `{type: object, properties: {spec: {type: object}}}`
	for name, test := range map[string]struct {
		before, after []string // schemas of v1, v2; the last one is stored
		spec          map[string]any
		severity      string
		path          string
	}{
		"a property":     {[]string{host}, []string{none}, map[string]any{"host": "a"}, "lossy", "v1: spec.host"},
		"a map":          {[]string{`{type: object, properties: {spec: {type: object, additionalProperties: {type: string}}}}`}, []string{none}, map[string]any{"host": "a"}, "lossy", "v1: spec"},
		"unknown fields": {[]string{`{type: object, x-kubernetes-preserve-unknown-fields: true}`}, []string{none}, map[string]any{"host": "a"}, "lossy", "v1: the object"},
		"another storage version": {
			[]string{host}, []string{host, none}, map[string]any{"host": "a"}, "lossy", "v1 to v2: spec.host",
		},
		"a type": {
			[]string{host},
			[]string{`{type: object, properties: {spec: {type: object, properties: {host: {type: integer}}}}}`},
			map[string]any{"host": "a"},
			"lossy", "v1: spec.host",
		},
		"an enum": {
			[]string{host},
			[]string{`{type: object, properties: {spec: {type: object, properties: {host: {type: string, enum: [b]}}}}}`},
			map[string]any{"host": "a"},
			"narrowing", "v1: spec.host",
		},
		"a required field": {
			[]string{host},
			[]string{`{type: object, properties: {spec: {type: object, required: [path], properties: {host: {type: string}, path: {type: string}}}}}`},
			map[string]any{"host": "a"},
			"narrowing", "v1: spec.path",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			define := func(schemas []string) *apiextensionsv1.CustomResourceDefinition {
				var versions []crdtest.Version
				for i, schema := range schemas {
					v := e.version([]string{"v1", "v2"}[i], schema)
					v.Storage = i == len(schemas)-1
					versions = append(versions, v)
				}
				return e.define("Website", versions...)
			}
			e.ensure(define(test.before))
			created := e.create(e.object("Website", "v1", "a", test.spec))
			_, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{define(test.after)})
			var refused *crd.ChangeError
			if !errors.As(err, &refused) || severityOf(refused.Problems[0]) != test.severity || refused.Problems[0].Path != test.path {
				t.Errorf("the error is %v, want %s: %s", err, test.severity, test.path)
			}
			if _, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{define(test.after)}, crd.AllowDataLoss(), crd.AllowNarrowing()); err != nil {
				t.Fatal(err)
			}
			// The API server uses the new schema a moment after the definition was written.
			clustertest.Eventually(t, func() string {
				live, err := client.GetLive(t.Context(), e.client, created)
				if err != nil {
					return err.Error()
				}
				before := live.DeepCopy()
				if err := unstructured.SetNestedField(live.Object, time.Now().Format(time.RFC3339Nano), "metadata", "annotations", "written"); err != nil {
					t.Fatal(err)
				}
				_, err = client.Patch(t.Context(), e.client, live, client.MergeFrom(before, live))
				host, found, _ := unstructured.NestedString(created.Object, "spec", "host")
				if now, err := client.GetLive(t.Context(), e.client, created); err == nil {
					host, found, _ = unstructured.NestedString(now.Object, "spec", "host")
				}
				fresh := e.object("Website", "v1", "fresh", test.spec)
				_, createErr := client.Create(t.Context(), e.client, fresh, client.DryRun())
				switch {
				case found && err == nil && createErr == nil:
					return "spec.host is still " + host + ", and the object can be written"
				default:
					return ""
				}
			})
		})
	}
}

// The API server rejects the changes that Compare reports as impossible.
func TestAPIServerRejectsImpossibleChanges(t *testing.T) {
	e := newEnv(t)
	d := e.define("Website", e.version("v1", host, stored), e.version("v2", host))
	e.ensure(d)
	for name, change := range map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"spec.scope":      func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Scope = apiextensionsv1.ClusterScoped },
		"spec.names.kind": func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Names.Kind = "Web" },
		"spec.versions[v1]": func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Versions = d.Spec.Versions[1:]
			d.Spec.Versions[0].Storage = true
		},
	} {
		changed := e.live(d.Name)
		change(changed)
		problems := crd.Compare(e.live(d.Name), changed)
		if len(problems) == 0 || severityOf(problems[0]) != "impossible" || problems[0].Path != name {
			t.Errorf("%s: the problems are %v", name, problems)
		}
		if _, err := client.Update(t.Context(), e.client, changed, client.DryRun()); retry.Classify(err) != retry.Invalid {
			t.Errorf("%s: the API server says %v", name, err)
		}
	}
}
