package simulated

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	v2 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v2"
	"github.com/evenkeel-go/evenkeel/examples/webapp/config"
	"github.com/evenkeel-go/evenkeel/examples/webapp/hooks"
	"github.com/evenkeel-go/evenkeel/examples/webapp/operator"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// versions is a cluster with the operator, its webhooks and the definition with v1 and v2.
type versions struct {
	*testing.T
	*simulation.Cluster
	definition *apiextensionsv1.CustomResourceDefinition
}

// testVersions runs a test with the definition of v1, the sample, and an operator that handles both.
func testVersions(t *testing.T, f func(v versions)) {
	t.Helper()
	cluster := simulation.Config{
		Manifests: []string{"../api/v1/webapp.example.com_webapps.yaml"}, YAML: string(config.Sample),
		Types: []func(*runtime.Scheme) error{v1.AddToScheme, v2.AddToScheme},
	}
	simulation.Test(t, cluster, func(t *testing.T, c *simulation.Cluster) {
		connection := c.Connect(operator.Name)
		webapps := newOperator(t, connection, owners{})
		server, err := webhook.New(webhook.Config{Cluster: connection, Hooks: append(webapps.Hooks(), hooks.Conversion())})
		if err != nil {
			t.Fatal(err)
		}
		definitions, err := crd.Parse(v2.CRD)
		if err != nil {
			t.Fatal(err)
		}
		const url = "https://webapp-operator.example.com"
		conversions, err := server.Conversions(url, nil)
		if err != nil {
			t.Fatal(err)
		}
		configurations, err := server.Configurations("webapp-operator", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := crd.SetConversions(conversions, definitions...); err != nil {
			t.Fatal(err)
		}
		c.Run(webapps)
		c.Settle()
		c.HandleWebhooks(server)
		for _, configuration := range configurations {
			if _, err := client.Apply(t.Context(), c.Client(), configuration); err != nil {
				t.Fatal(err)
			}
		}
		f(versions{t, c, definitions[0]})
	})
}

// store installs the definition with a storage version.
func (v versions) store(version string) {
	v.Helper()
	for i := range v.definition.Spec.Versions {
		v.definition.Spec.Versions[i].Storage = v.definition.Spec.Versions[i].Name == version
	}
	if _, err := crd.Ensure(v.Context(), v.Client(), []*apiextensionsv1.CustomResourceDefinition{v.definition}); err != nil {
		v.Fatal(err)
	}
	v.Settle()
}

func (v versions) migrate() {
	v.Helper()
	if _, err := crd.Migrate(v.Context(), v.Client(), v.definition.Name); err != nil {
		v.Fatal(err)
	}
	v.Settle()
	if stored := simulation.Get[*apiextensionsv1.CustomResourceDefinition](v.Cluster, v.definition.Name).Status.StoredVersions; !slices.Equal(stored, []string{v2.Version}) {
		v.Errorf("status.storedVersions is %q", stored)
	}
}

// state is what must not change with the versions: all children, and the generations and the status of WebApps.
func (v versions) state() map[string]string {
	v.Helper()
	state := map[string]string{}
	for app, err := range client.List[*v1.WebApp](v.Context(), v.Client(), kube.Selection{}) {
		if err != nil {
			v.Fatal(err)
		}
		state["WebApp "+app.Name] = fmt.Sprint(app.Generation, app.Status)
	}
	children[*appsv1.Deployment](v, state)
	children[*corev1.Service](v, state)
	children[*corev1.ConfigMap](v, state)
	return state
}

func children[T kube.Object](v versions, state map[string]string) {
	v.Helper()
	for obj, err := range client.List[T](v.Context(), v.Client(), kube.Selection{}) {
		if err != nil {
			v.Fatal(err)
		}
		state[fmt.Sprintf("%T %s", obj, obj.GetName())] = string(obj.GetUID()) + " " + obj.GetResourceVersion()
	}
}

// A definition with v1 gets v2, which becomes the storage version. Users of both versions see the same WebApps, and the
// operator, which uses v1, changes nothing in response.
func TestTwoVersions(t *testing.T) {
	t.Parallel()
	testVersions(t, func(v versions) {
		before := v.state()
		unchanged := func(step string) {
			v.Helper()
			if diff := cmp.Diff(before, v.state()); diff != "" {
				v.Errorf("%s (-want +got):\n%s", step, diff)
			}
		}
		v.store(v1.Version)
		unchanged("v2 is added")

		v.Apply(`{apiVersion: webapp.example.com/v2, kind: WebApp, metadata: {name: store}, spec: {app: {image: "store:1", env: {A: b}}, replicas: 3, mode: Suspended, contact: the store team}}`)
		v.Settle()
		for _, stored := range []string{v1.Version, v2.Version} {
			v.Expect(`
apiVersion: webapp.example.com/v2
kind: WebApp
metadata: {name: store, annotations: null}
spec: {app: {image: "store:1", port: 8080, env: {A: b}}, replicas: 3, mode: Suspended, contact: the store team}
status: {conditions: [{type: Ready, status: "True"}, {type: Suspended, status: "True"}]}
---
apiVersion: webapp.example.com/v1
kind: WebApp
metadata: {name: store, annotations: {webapp.example.com/contact: the store team}}
spec: {image: "store:1", port: 8080, config: {A: b}, replicas: 3, suspend: true}
status: {conditions: [{type: Ready, status: "True"}, {type: Suspended, status: "True"}]}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: store}, spec: {replicas: 0}}
---
apiVersion: webapp.example.com/v2
kind: WebApp
metadata: {name: shop}
spec: {app: {image: "registry.example.com/shop:1.0", port: 8080, env: {GREETING: hello}}, replicas: 2, mode: Running, host: shop.example.com, contact: null}
---
apiVersion: webapp.example.com/v1
kind: WebApp
metadata: {name: shop, annotations: null}
spec: {image: "registry.example.com/shop:1.0", port: 8080, config: {GREETING: hello}, replicas: 2, host: shop.example.com}`)
			if stored == v2.Version {
				break
			}
			before = v.state()
			v.store(v2.Version)
			unchanged("v2 is the storage version")
			v.migrate()
			unchanged("the stored objects are migrated")
		}

		if requests := v.Record(func() { v.Advance(time.Hour) }); len(requests.Writes()) > 0 {
			v.Errorf("writes of the idle operator:\n%s", requests.Writes())
		}
		unchanged("an hour later")

		// Users of both versions change the object.
		simulation.Edit(v.Cluster, "default/store", "", func(app *v2.WebApp) { app.Spec.Mode, app.Spec.App.Image = v2.Running, "store:2" })
		v.Settle()
		v.Expect(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: store}, spec: {replicas: 3, template: {spec: {containers: [{name: app, image: "store:2"}]}}}}`)
		simulation.Edit(v.Cluster, "default/store", "", func(app *v1.WebApp) { app.Spec.Replicas = new(int32(1)) })
		v.Settle()
		v.Expect(`
{apiVersion: apps/v1, kind: Deployment, metadata: {name: store}, spec: {replicas: 1}}
---
{apiVersion: webapp.example.com/v2, kind: WebApp, metadata: {name: store}, spec: {replicas: 1, contact: the store team}, status: {readyReplicas: 1}}`)
		simulation.Delete[*v2.WebApp](v.Cluster, "default/shop")
		v.Settle()
		simulation.ExpectGone[*v1.WebApp](v.Cluster, "default/shop")
		simulation.ExpectGone[*appsv1.Deployment](v.Cluster, "default/shop")
	})
}

// A manifest that is applied again, as by a program that corrects drift, changes nothing.
func TestAppliedAgainInEachVersion(t *testing.T) {
	t.Parallel()
	manifests := []string{
		`{apiVersion: webapp.example.com/v1, kind: WebApp, metadata: {name: shop}, spec: {image: "shop:1", suspend: false, config: {A: b}}}`,
		`{apiVersion: webapp.example.com/v1, kind: WebApp, metadata: {name: bar}, spec: {image: "bar:1", config: {}}}`,
		`{apiVersion: webapp.example.com/v2, kind: WebApp, metadata: {name: store}, spec: {app: {image: "store:1"}, mode: Running, contact: me}}`,
		`{apiVersion: webapp.example.com/v2, kind: WebApp, metadata: {name: market}, spec: {app: {image: "market:1", env: {}}}}`,
	}
	testVersions(t, func(v versions) {
		apply := func() {
			for _, manifest := range manifests {
				v.Apply(manifest)
			}
			v.Settle()
		}
		for _, stored := range []string{v1.Version, v2.Version} {
			v.store(stored)
			apply()
			before := v.state()
			for range 2 {
				if writes := v.Record(apply).Writes(); len(writes) > len(manifests) {
					v.Errorf("%s is stored, and other writes follow:\n%s", stored, writes)
				}
			}
			if diff := cmp.Diff(before, v.state()); diff != "" {
				v.Errorf("%s is stored (-want +got):\n%s", stored, diff)
			}
		}
	})
}

// The API server calls the admission webhooks, which have v1, also for requests in v2.
func TestHooksOfBothVersions(t *testing.T) {
	t.Parallel()
	testVersions(t, func(v versions) {
		v.store(v2.Version)
		create := func(name, host string) (*v2.WebApp, error) {
			defer v.Settle()
			return client.Create(v.Context(), v.Client(), &v2.WebApp{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec:       v2.WebAppSpec{App: v2.App{Image: "store:1"}, Host: host, Contact: "me"},
			})
		}
		store, err := create("store", "store")
		if err != nil || store.Spec.Host != "store.example.com" || store.Spec.Contact != "me" || len(store.Annotations) > 0 {
			t.Errorf("a host without a domain: %+v, %v", store, err)
		}
		if _, err := create("second", "shop"); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `spec.host: Invalid value: "shop.example.com": used by WebApp default/shop`) {
			t.Errorf("a host of another WebApp: %v", err)
		}
	})
}

// The annotations of an object have at most 256 KiB. A contact that exceeds it in v1 would end each list in v1, so it is
// rejected: the webhooks of v1 review requests in v2 too, and their object cannot be converted.
func TestOversizedContactIsRejected(t *testing.T) {
	t.Parallel()
	testVersions(t, func(v versions) {
		v.store(v2.Version)
		_, err := client.Create(v.Context(), v.Client(), &v2.WebApp{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "long"},
			Spec:       v2.WebAppSpec{App: v2.App{Image: "store:1"}, Contact: strings.Repeat("x", 256<<10)},
		})
		if err == nil || !strings.Contains(err.Error(), "metadata.annotation: Too long") {
			v.Errorf("a long contact: %v", err)
		}
		for _, err := range client.List[*v1.WebApp](v.Context(), v.Client(), kube.Selection{}) {
			if err != nil {
				v.Error(err)
			}
		}
	})
}

// A migration rewrites the objects of a namespace that is terminating, and does not wait for their finalizers.
func TestMigrationInTerminatingNamespace(t *testing.T) {
	t.Parallel()
	testVersions(t, func(v versions) {
		v.store(v1.Version)
		v.Apply(`{apiVersion: v1, kind: Namespace, metadata: {name: closing}}`)
		if _, err := client.Create(v.Context(), v.Client(), &v1.WebApp{
			ObjectMeta: metav1.ObjectMeta{Namespace: "closing", Name: "held", Finalizers: []string{"example.com/hold"}},
			Spec:       v1.WebAppSpec{Image: "shop:1"},
		}); err != nil {
			t.Fatal(err)
		}
		if err := client.Delete(v.Context(), v.Client(), simulation.Get[*corev1.Namespace](v.Cluster, "closing")); err != nil {
			t.Fatal(err)
		}
		v.Settle()
		held := simulation.Get[*v1.WebApp](v.Cluster, "closing/held")
		if held.DeletionTimestamp == nil {
			t.Fatal("the WebApp is not being deleted")
		}
		v.store(v2.Version)
		v.migrate()
		if migrated := simulation.Get[*v2.WebApp](v.Cluster, "closing/held"); migrated.UID != held.UID || migrated.Spec.App.Image != "shop:1" {
			t.Errorf("the WebApp is %+v", migrated)
		}
	})
}

// Version v1 cannot be removed before the migration, and afterwards only by a program that says so.
func TestRemovalOfV1(t *testing.T) {
	t.Parallel()
	testVersions(t, func(v versions) {
		v.store(v2.Version)
		without := v.definition.DeepCopy()
		without.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
		without.Spec.Versions = slices.DeleteFunc(without.Spec.Versions, func(version apiextensionsv1.CustomResourceDefinitionVersion) bool { return version.Name == v1.Version })
		remove := func(options ...crd.EnsureOption) error {
			_, err := crd.Ensure(v.Context(), v.Client(), []*apiextensionsv1.CustomResourceDefinition{without}, options...)
			return err
		}
		const path = "spec.versions[v1]"
		refused := func(err error, severity string) {
			v.Helper()
			change, ok := errors.AsType[*crd.ChangeError](err)
			if !ok || !slices.ContainsFunc(change.Problems, func(p crd.Problem) bool { return strings.HasPrefix(p.String(), severity+": "+path+": ") }) {
				v.Errorf("the removal of v1: %v, want %s: %s", err, severity, path)
			}
		}
		refused(remove(crd.AllowNarrowing(), crd.AllowDataLoss()), "impossible")
		v.migrate()
		refused(remove(), "narrowing")
		if err := remove(crd.AllowNarrowing(path)); err != nil {
			v.Error(err)
		}
		v.HandleWebhooks(nil)
		v.Expect(`
apiVersion: webapp.example.com/v2
kind: WebApp
metadata: {name: shop}
spec: {app: {image: "registry.example.com/shop:1.0", port: 8080, env: {GREETING: hello}}, replicas: 2, mode: Running, host: shop.example.com}
status: {readyReplicas: 2}`)
	})
}

// The removal of v1 ends after any of its writes: v1 is either converted or not served.
func TestInterruptedRemovalOfV1(t *testing.T) {
	t.Parallel()
	for writes := 1; writes <= 2; writes++ {
		t.Run(fmt.Sprint(writes), func(t *testing.T) {
			t.Parallel()
			testVersions(t, func(v versions) {
				v.store(v2.Version)
				v.migrate()
				without := v.definition.DeepCopy()
				without.Spec.Conversion = nil
				without.Spec.Versions = slices.DeleteFunc(without.Spec.Versions, func(version apiextensionsv1.CustomResourceDefinitionVersion) bool { return version.Name == v1.Version })
				remove := func() ([]crd.Ensured, error) {
					return crd.Ensure(v.Context(), v.Client(), []*apiextensionsv1.CustomResourceDefinition{without}, crd.AllowNarrowing("spec.versions[v1]"))
				}
				left := writes
				restore := v.Intercept(func(r simulation.Request, send func()) error {
					if !r.IsWrite() || r.Resource.Resource != "customresourcedefinitions" {
						return nil
					}
					if left--; left > 0 {
						return nil
					}
					send()
					return errors.New("the program ended")
				})
				if _, err := remove(); err == nil {
					v.Fatal("no error")
				}
				restore()
				for app, err := range client.List[*v1.WebApp](v.Context(), v.Client(), kube.Selection{}) {
					if !apierrors.IsNotFound(err) && !errors.Is(err, kube.ErrNotServed) {
						v.Errorf("v1 is served: %+v, %v", app, err)
					}
				}
				if _, err := remove(); err != nil {
					v.Error(err)
				}
				if ensured, err := remove(); err != nil || ensured[0].Outcome != client.Unchanged || ensured[0].Definition.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
					v.Errorf("the second call: %+v, %v", ensured, err)
				}
				v.HandleWebhooks(nil)
				v.Expect(`{apiVersion: webapp.example.com/v2, kind: WebApp, metadata: {name: shop}, spec: {app: {image: "registry.example.com/shop:1.0"}}}`)
			})
		})
	}
}
