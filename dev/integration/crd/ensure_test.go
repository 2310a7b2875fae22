package crd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/crdtest"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestSmokeEnsureWaitsUntilKindIsServed(t *testing.T) {
	e := newEnv(t)
	website, bill := e.define("Website", e.version("v1", host, stored), e.version("v1beta1", host)), e.define("Bill", e.version("v1", host))
	calls := newCalls()
	definitions := []*apiextensionsv1.CustomResourceDefinition{website, bill}
	ensured, err := crd.Ensure(kube.ObserveCalls(t.Context(), calls), e.client, definitions)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range definitions {
		if got := ensured[i]; got.Definition.Name != want.Name || got.Outcome != client.Created || got.Definition.UID == "" {
			t.Errorf("definition %d is %s, %s, uid %q, want %s to be created", i, got.Definition.Name, got.Outcome, got.Definition.UID, want.Name)
		}
	}
	// Objects can be created at once, in every served version.
	e.create(e.object("Website", "v1", "a", nil))
	e.create(e.object("Website", "v1beta1", "b", nil))
	e.create(e.object("Bill", "v1", "a", nil))

	// The same again, with the same client and with the client of a new program.
	calls.Take()
	for name, test := range map[string]struct {
		client *client.Client
		calls  []string
	}{
		"the same program": {e.client, []string{"get customresourcedefinitions", "get customresourcedefinitions"}},
		// Discovery of definitions, and of the group's versions v1 and v1beta1. The two definitions may share one
		// request for v1.
		"another program": {newProgram(t), nil},
	} {
		second, err := crd.Ensure(kube.ObserveCalls(t.Context(), calls), test.client, definitions)
		if err != nil {
			t.Fatal(err)
		}
		requests := calls.Take()
		if test.calls != nil {
			if diff := cmp.Diff(test.calls, requests); diff != "" {
				t.Errorf("%s: calls (-want +got):\n%s", name, diff)
			}
		}
		for _, call := range requests {
			if !strings.HasPrefix(call, "get") && call != fixture.Discovery {
				t.Errorf("%s: it has made the call %q", name, call)
			}
		}
		for i := range second {
			if second[i].Outcome != client.Unchanged || second[i].Definition.ResourceVersion != e.live(definitions[i].Name).ResourceVersion {
				t.Errorf("%s: %s is %s", name, second[i].Definition.Name, second[i].Outcome)
			}
		}
	}
}

func TestEnsuredKindIsServedAsDeclared(t *testing.T) {
	e := newEnv(t)
	d := e.define("Website", crdtest.Version{
		Name:   "v1",
		Schema: e.version("", `{type: object, properties: {spec: {type: object, properties: {host: {type: string}, replicas: {type: integer}}}, status: {type: object, properties: {replicas: {type: integer}, url: {type: string}}}}}`).Schema,
		Status: true, Scale: true, SelectableFields: []string{".spec.host"}, Deprecated: true,
	})
	d.Labels, d.Spec.Scope = map[string]string{"app": "shop"}, apiextensionsv1.ClusterScoped
	d.Spec.Names.ShortNames, d.Spec.Names.Categories = []string{"web", "ws"}, []string{"all", "shop"}
	d.Spec.Versions[0].DeprecationWarning = new("use something else")
	d.Spec.Versions[0].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Host", Type: "string", JSONPath: ".spec.host"}, {Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
	}
	e.ensure(d)
	resources := e.resources("v1")
	website := resources["websites"]
	if website.Namespaced || website.SingularName != "website" || website.Kind != "Website" ||
		!cmp.Equal(website.ShortNames, []string{"web", "ws"}) || !cmp.Equal(website.Categories, []string{"all", "shop"}) {
		t.Errorf("it is served as %+v", website)
	}
	for _, sub := range []string{"websites/status", "websites/scale"} {
		if _, ok := resources[sub]; !ok {
			t.Errorf("there is no %s among %v", sub, resources)
		}
	}
	obj := e.object("Website", "v1", "a", map[string]any{"host": "a.example.com", "replicas": int64(3)})
	obj.SetNamespace("")
	obj.Object["status"] = map[string]any{"url": "http://a"}
	created := e.create(obj)
	if status, found, _ := unstructured.NestedMap(created.Object, "status"); found {
		t.Errorf("the status %v was written with the object", status)
	}
	table := e.table("websites")
	if diff := cmp.Diff([]string{"Name", "Host", "Age"}, table); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	selected, err := client.All[*unstructured.Unstructured](t.Context(), e.client, kube.Selection{Kind: obj.GroupVersionKind(), FieldSelector: "spec.host=a.example.com"})
	if err != nil || len(selected) != 1 {
		t.Errorf("the field selector has found %d objects, %v", len(selected), err)
	}
}

// table returns the column names of kubectl get.
func (e env) table(resource string) []string {
	e.Helper()
	api, err := e.client.Cluster().RESTClient(apiextensionsv1.SchemeGroupVersion)
	if err != nil {
		e.Fatal(err)
	}
	table := &metav1.Table{}
	err = api.Get().AbsPath("/apis", e.group, "v1", resource).SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Do(e.Context()).Into(table)
	if err != nil {
		e.Fatal(err)
	}
	var names []string
	for _, column := range table.ColumnDefinitions {
		names = append(names, column.Name)
	}
	return names
}

func TestEnsureMakesAllowedChanges(t *testing.T) {
	e := newEnv(t)
	d := e.define("Website", e.version("v1", host))
	d.Labels = map[string]string{"app": "shop", "old": "yes"}
	e.ensure(d)
	e.edit(d.Name, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Annotations = map[string]string{"somebody": "else"}
		d.Labels["theirs"] = "yes"
	})
	if got := e.ensure(d)[0].Outcome; got != client.Unchanged {
		t.Errorf("what others have put there makes it %s", got)
	}

	next := e.define("Website",
		e.version("v1", `{type: object, properties: {spec: {type: object, properties: {host: {type: string}, path: {type: string}}}}}`, stored),
		e.version("v2", host))
	next.Labels = map[string]string{"app": "shop"}
	next.Spec.Names.ShortNames = []string{"web"}
	got := e.ensure(next)[0]
	if got.Outcome != client.Updated {
		t.Errorf("it is %s, want updated", got.Outcome)
	}
	live := e.live(d.Name)
	if diff := cmp.Diff(map[string]string{"app": "shop", "theirs": "yes"}, live.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"somebody": "else"}, live.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	// Ensure waits until the versions are served. Short names are accepted and served a moment later.
	clustertest.Eventually(t, func() string {
		return cmp.Diff([]string{"web"}, e.resources("v2")["websites"].ShortNames)
	})
	e.create(e.object("Website", "v2", "a", map[string]any{"host": "a"}))
	if got := e.ensure(next)[0].Outcome; got != client.Unchanged {
		t.Errorf("the second time it is %s", got)
	}
	// Only a label changes.
	next.Labels = nil
	if got := e.ensure(next)[0].Outcome; got != client.Updated || e.live(d.Name).Labels["app"] != "" {
		t.Errorf("without its label it is %s, with labels %v", got, e.live(d.Name).Labels)
	}
}

func TestEnsureRejectsHarmfulChanges(t *testing.T) {
	e := newEnv(t)
	d, other := e.define("Website", e.version("v1", host)), e.define("Bill", e.version("v1", host))
	e.ensure(d)
	before := e.live(d.Name)
	next := e.define("Website", e.version("v1", `{type: object, properties: {spec: {type: object, required: [path], properties: {path: {type: string}}}}}`))
	var refused *crd.ChangeError
	for name, options := range map[string][]crd.EnsureOption{
		"as it is":          nil,
		"the wrong path":    {crd.AllowDataLoss("v1: spec.path"), crd.AllowNarrowing()},
		"half of it":        {crd.AllowDataLoss()},
		"the other half":    {crd.AllowNarrowing("v1: spec.path")},
		"the wrong options": {crd.AllowDataLoss("v1: spec.path"), crd.AllowNarrowing("v1: spec.host")},
	} {
		_, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{other, next}, options...)
		if !errors.As(err, &refused) || refused.Name != d.Name || !strings.Contains(err.Error(), "\n\t") {
			t.Errorf("%s: the error is %v, want one that names the problems", name, err)
		}
	}
	_, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{next})
	for _, want := range []string{d.Name, "lossy: v1: spec.host", "narrowing: v1: spec.path", `AllowDataLoss("v1: spec.host")`, `AllowNarrowing("v1: spec.path")`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	if now := e.live(d.Name); now.ResourceVersion != before.ResourceVersion {
		t.Error("it was written")
	}
	if _, err := client.Get[*apiextensionsv1.CustomResourceDefinition](t.Context(), e.client, kube.KeyOf(other), client.OfKind(definitionKind())); !errors.Is(err, client.ErrGone) {
		t.Errorf("the other one was written: %v", err)
	}
	ensured, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{next}, crd.AllowDataLoss("v1: spec.host"), crd.AllowNarrowing("v1: spec.path"))
	if err != nil || ensured[0].Outcome != client.Updated || len(ensured[0].Allowed) != 2 {
		t.Errorf("what was allowed is %+v, %v", ensured, err)
	}
}

// Replicas of one program start at the same time.
func TestConcurrentEnsure(t *testing.T) {
	e := newEnv(t)
	next := e.define("Website", e.version("v1", host, stored), e.version("v2", host))
	for _, test := range []struct {
		name       string
		definition *apiextensionsv1.CustomResourceDefinition
	}{
		{"create", e.define("Website", e.version("v1", host))},
		{"update", next},
	} {
		name, d := test.name, test.definition
		var running sync.WaitGroup
		var changes atomic.Int32
		for range 6 {
			program := newProgram(t)
			running.Go(func() { // waited for below
				ensured, err := crd.Ensure(t.Context(), program, []*apiextensionsv1.CustomResourceDefinition{d})
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				if ensured[0].Outcome != client.Unchanged {
					changes.Add(1)
				}
				_, err = client.Create(t.Context(), program, e.object("Website", "v1", fmt.Sprintf("%s-%p", name, program), nil), client.DryRun())
				if err != nil {
					t.Errorf("%s: use it: %v", name, err)
				}
			})
		}
		running.Wait()
		if changes.Load() == 0 {
			t.Errorf("%s: nobody has changed it", name)
		}
	}
}

// Another client changes the definition between the read and the write, which would then be harmful.
func TestEnsureReplacesOnlyComparedDefinition(t *testing.T) {
	e := newEnv(t)
	d := e.define("Website", e.version("v1", host))
	e.ensure(d)
	next := d.DeepCopy()
	next.Labels = map[string]string{"app": "shop"}
	wider := e.define("Website", e.version("v1", `{type: object, properties: {spec: {type: object, properties: {host: {type: string}, path: {type: string}}}}}`))
	var once sync.Once
	racing, err := e.client.With(func(config *client.Config) {
		config.Interceptors = append(config.Interceptors, client.On(func(send client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				once.Do(func() { //nolint:contextcheck // a request of another client
					e.edit(d.Name, func(live *apiextensionsv1.CustomResourceDefinition) { live.Spec = wider.Spec })
				})
				return send(ctx, r)
			}
		}, client.VerbApply))
	})
	if err != nil {
		t.Fatal(err)
	}
	var refused *crd.ChangeError
	_, err = crd.Ensure(t.Context(), racing, []*apiextensionsv1.CustomResourceDefinition{next})
	if !errors.As(err, &refused) || refused.Problems[0].Path != "v1: spec.path" {
		t.Errorf("the error is %v, want a refusal for spec.path", err)
	}
	if _, ok := e.live(d.Name).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["path"]; !ok {
		t.Error("the other's change is lost")
	}
}

func TestEnsureDryRunWritesNothing(t *testing.T) {
	e := newEnv(t)
	dry, err := e.client.With(func(config *client.Config) { config.DryRun = true })
	if err != nil {
		t.Fatal(err)
	}
	d := e.define("Website", e.version("v1", host))
	ensured, err := crd.Ensure(t.Context(), dry, []*apiextensionsv1.CustomResourceDefinition{d})
	if err != nil || ensured[0].Outcome != client.Created {
		t.Errorf("it would be %+v, %v", ensured, err)
	}
	e.ensure(d)
	if err := crd.Remove(t.Context(), dry, d.Name); err != nil {
		t.Error(err)
	}
	if e.live(d.Name).DeletionTimestamp != nil {
		t.Error("the dry run has removed it")
	}
}

func TestEnsureKeepsForeignConversion(t *testing.T) {
	e := newEnv(t)
	d := e.define("Website", e.version("v1", host, stored), e.version("v2", host))
	e.ensure(d)
	webhook := &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "shop", Name: "hook"}},
			ConversionReviewVersions: []string{"v1"},
		},
	}
	e.edit(d.Name, func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Conversion = webhook })
	if got := e.ensure(d)[0].Outcome; got != client.Unchanged {
		t.Errorf("it is %s", got)
	}
	d.Spec.Names.ShortNames = []string{"web"}
	e.ensure(d)
	if got := e.live(d.Name).Spec.Conversion.Strategy; got != apiextensionsv1.WebhookConverter {
		t.Errorf("the conversion is %s now", got)
	}
	// The program's own conversion, with a certificate that another client adds.
	d.Spec.Conversion = webhook
	e.ensure(d)
	e.edit(d.Name, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Conversion.Webhook.ClientConfig.CABundle = []byte(certificate)
	})
	if got := e.ensure(d)[0].Outcome; got != client.Unchanged {
		t.Errorf("with a certificate it is %s", got)
	}
	d.Spec.Names.ShortNames = nil
	e.ensure(d)
	if got := e.live(d.Name).Spec.Conversion.Webhook.ClientConfig.CABundle; string(got) != certificate {
		t.Errorf("the certificate is %q now", got)
	}
	// Removal of the program's own conversion is detected.
	d.Spec.Conversion = nil
	var refused *crd.ChangeError
	_, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{d})
	if !errors.As(err, &refused) || refused.Problems[0].Path != "spec.conversion" {
		t.Errorf("the error is %v, want a refusal for the conversion", err)
	}
}

func TestEnsureRejectsInvalidArguments(t *testing.T) {
	e := newEnv(t)
	calls := newCalls()
	good := e.define("Website", e.version("v1", host))
	bad := good.DeepCopy()
	bad.Name = "web"
	for name, test := range map[string]struct {
		client      *client.Client
		definitions []*apiextensionsv1.CustomResourceDefinition
		options     []crd.EnsureOption
		want        string
	}{
		"no client":    {nil, []*apiextensionsv1.CustomResourceDefinition{good}, nil, "client is nil"},
		"a bad name":   {e.client, []*apiextensionsv1.CustomResourceDefinition{good, bad}, nil, "CustomResourceDefinition web: metadata.name"},
		"twice":        {e.client, []*apiextensionsv1.CustomResourceDefinition{good, good}, nil, "twice"},
		"nil":          {e.client, []*apiextensionsv1.CustomResourceDefinition{nil}, nil, "definition 1: the definition is nil"},
		"a nil option": {e.client, []*apiextensionsv1.CustomResourceDefinition{good}, []crd.EnsureOption{nil}, "an option is nil"},
	} {
		if _, err := crd.Ensure(kube.ObserveCalls(t.Context(), calls), test.client, test.definitions, test.options...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: the error is %v, want %q", name, err, test.want)
		}
	}
	if requests := calls.Take(); len(requests) > 0 {
		t.Errorf("it has made the calls %q", requests)
	}
}
