package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/client"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	v2 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v2"
	"github.com/evenkeel-go/evenkeel/examples/webapp/config"
	"github.com/evenkeel-go/evenkeel/examples/webapp/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/examples/webapp/operator"
	"github.com/evenkeel-go/evenkeel/kube"
)

// releases runs releases of the program, with the permissions of folder config.
type releases struct {
	*testing.T
	client    *client.Client // the user's
	namespace string
	records   string // the URL
	webhooks  string // the address
}

// release is the arguments of a release.
type release []string

// The first release has no webhooks, and does not change the definition. It is the program as it was before v2.
func (r *releases) first() release { return nil }

// The second release has v2 and the conversion.
func (r *releases) second() release {
	return release{"--webhook-listen", r.webhooks, "--webhook-url", "https://" + r.webhooks}
}

// The third release stores v2.
func (r *releases) third() release { return append(r.second(), "--store-v2") }

// start runs a release until stop.
func (r *releases) start(arguments release) (stop func()) {
	r.Helper()
	arguments = append(release{"--kubeconfig", asOperator(r.T), "--records", r.records, "--listen", clustertest.FreeAddress(r.T)}, arguments...)
	stop = clustertest.Go(r.T, func(ctx context.Context) error {
		return run(ctx, evenkeel.NewProgram(operator.Name, arguments...))
	})
	return stop
}

// ready waits until the WebApps are ready for their current spec, which is the same in both versions.
func (r *releases) ready(names ...string) {
	r.Helper()
	for _, name := range names {
		clustertest.Eventually(r.T, "WebApp "+name+" is ready", func(ctx context.Context) (bool, string) {
			app, err := client.Get[*v1.WebApp](ctx, r.client, kube.Key{Namespace: r.namespace, Name: name})
			if err != nil {
				return false, err.Error()
			}
			ready := meta.FindStatusCondition(app.Status.Conditions, v1.ConditionReady)
			return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == app.Generation, fmt.Sprintf("generation %d, %+v", app.Generation, app.Status)
		})
	}
}

// converts waits until the API server converts WebApps.
func (r *releases) converts() {
	r.Helper()
	clustertest.Eventually(r.T, "objects are converted", func(ctx context.Context) (bool, string) {
		one, err := client.Get[*v1.WebApp](ctx, r.client, kube.Key{Namespace: r.namespace, Name: "shop"})
		if err != nil {
			return false, err.Error()
		}
		two, err := client.Get[*v2.WebApp](ctx, r.client, kube.KeyOf(one))
		if err != nil {
			return false, err.Error()
		}
		return two.Spec.App.Image == one.Spec.Image && two.Spec.App.Env["GREETING"] == one.Spec.Config["GREETING"] && two.Spec.Mode == v2.Running, fmt.Sprintf("%+v", two.Spec)
	})
	// The hooks are called, too.
	clustertest.Eventually(r.T, "the conversion lasts", func(ctx context.Context) (bool, string) {
		app := &v2.WebApp{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "shop"}}
		_, err := client.Patch(ctx, r.client, app, client.RawPatch("application/merge-patch+json", []byte(`{}`)))
		return err == nil, fmt.Sprint(err)
	})
}

// leader waits until a process other than the given one leads, and returns it.
func (r *releases) leader(other string) (identity string) {
	r.Helper()
	clustertest.Eventually(r.T, "another process leads", func(context.Context) (bool, string) {
		identity = holder(r.T, r.client) //nolint:contextcheck // it has the test's
		return identity != "" && identity != other, identity
	})
	return identity
}

// setImage changes a WebApp in a version, and waits until its Deployment has the image.
func (r *releases) setImage(version, name, image string) {
	r.Helper()
	key := kube.Key{Namespace: r.namespace, Name: name}
	var app kube.Object = &v1.WebApp{}
	patch := fmt.Sprintf(`{"spec":{"image":%q}}`, image)
	if version == v2.Version {
		app, patch = &v2.WebApp{}, fmt.Sprintf(`{"spec":{"app":{"image":%q}}}`, image)
	}
	app.SetNamespace(key.Namespace)
	app.SetName(key.Name)
	if _, err := client.Patch(r.Context(), r.client, app, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		r.Fatal(err)
	}
	r.ready(name)
	deployment, err := client.Get[*appsv1.Deployment](r.Context(), r.client, key)
	if err != nil || deployment.Spec.Template.Spec.Containers[0].Image != image {
		r.Errorf("the Deployment has another image than %s: %+v, %v", image, deployment, err)
	}
}

// state is what a step without a change of a spec must keep: all children with the fields of the operator, and the
// generations, finalizers and conditions of the WebApps.
func (r *releases) state() map[string]string {
	r.Helper()
	state := map[string]string{}
	for app, err := range client.List[*v1.WebApp](r.Context(), r.client, kube.Selection{Namespaces: []string{r.namespace}}) {
		if err != nil {
			r.Fatal(err)
		}
		state["WebApp "+app.Name] = fmt.Sprint(app.UID, app.Generation, app.Finalizers, app.Status)
	}
	childrenOf[*appsv1.Deployment](r, state)
	childrenOf[*corev1.Service](r, state)
	childrenOf[*corev1.ConfigMap](r, state)
	return state
}

func childrenOf[T kube.Object](r *releases, state map[string]string) {
	r.Helper()
	for obj, err := range client.List[T](r.Context(), r.client, kube.Selection{Namespaces: []string{r.namespace}}) {
		if err != nil {
			r.Fatal(err)
		}
		text := fmt.Sprint(obj.GetUID(), obj.GetGeneration())
		for _, m := range obj.GetManagedFields() {
			if m.Manager == operator.Name {
				text += fmt.Sprint(" ", m.Operation, m.Time, m.FieldsV1)
			}
		}
		state[fmt.Sprintf("%T %s", obj, obj.GetName())] = text
	}
}

// The program is updated from v1 to v2 as the storage version, rolled back to each former release, and updated again. Each
// release handles changes, and none of the steps changes children, generations or conditions.
func TestUpdateAndRollback(t *testing.T) {
	cluster, c := connect(t)
	server := httptest.NewServer(&records{targets: map[string]string{}, owners: map[string]string{}})
	t.Cleanup(server.Close)
	r := &releases{T: t, client: c, namespace: clustertest.Namespace(t), records: server.URL, webhooks: clustertest.FreeAddress(t)}
	t.Cleanup(func() { uninstall(t, cluster, c) })
	definition := func() *apiextensionsv1.CustomResourceDefinition {
		definition, err := client.Get[*apiextensionsv1.CustomResourceDefinition](t.Context(), c, kube.Key{Name: v1.Resource + "." + v1.Group})
		if err != nil {
			t.Fatal(err)
		}
		return definition
	}

	stop := r.start(r.first())
	if err := clustertest.Apply(t.Context(), cluster, r.namespace, config.Sample); err != nil {
		t.Fatal(err)
	}
	r.ready("shop")
	before := r.state()
	unchanged := func(step string) {
		t.Helper()
		after := r.state()
		maps.DeleteFunc(after, func(key, _ string) bool { return before[key] == "" })
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}
	leader := r.leader("")
	next := func(stopFormer func(), release release) (stop func()) {
		t.Helper()
		stopFormer()
		stop = r.start(release)
		leader = r.leader(leader)
		return stop
	}

	stop = next(stop, r.second())
	r.converts()
	unchanged("the second release")
	store, err := client.Create(t.Context(), c, &v2.WebApp{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "store"},
		Spec:       v2.WebAppSpec{App: v2.App{Image: "store:1"}, Host: "store.example.com", Contact: "the store team"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.ready("store")
	if stored := definition().Status.StoredVersions; !slices.Equal(stored, []string{v1.Version}) {
		t.Errorf("the second release stores %q", stored)
	}

	before = r.state()
	stop = next(stop, r.third())
	migrated := func() {
		t.Helper()
		clustertest.Eventually(t, "the stored objects are migrated", func(context.Context) (bool, string) {
			stored := definition().Status.StoredVersions
			return slices.Equal(stored, []string{v2.Version}), fmt.Sprint(stored)
		})
	}
	migrated()
	unchanged("the third release")
	if err := clustertest.Apply(t.Context(), cluster, "", v1.CRD); !apierrors.IsInvalid(err) {
		t.Errorf("the definition of the first release is applied: %v", err)
	}
	r.setImage(v1.Version, "shop", "shop:2")
	r.setImage(v2.Version, "store", "store:2")

	before = r.state()
	stop = next(stop, r.second())
	r.converts()
	unchanged("the rollback to the second release")
	migrated()
	r.setImage(v1.Version, "store", "store:3")
	r.setImage(v2.Version, "shop", "shop:3")

	// The first release cannot convert. It leads, and a replica of the third one, which does not, converts.
	before = r.state()
	stopFirst := r.start(r.first())
	stop()
	leader = r.leader(leader)
	stop = r.start(r.third())
	r.converts()
	unchanged("the rollback to the first release")
	r.setImage(v1.Version, "shop", "shop:4")
	r.setImage(v2.Version, "store", "store:4")
	if current := holder(t, c); current != leader {
		t.Errorf("%s leads, want the first release: %s", current, leader)
	}

	before = r.state()
	stopFirst()
	leader = r.leader(leader)
	r.setImage(v2.Version, "shop", "shop:5")
	delete(before, "WebApp shop")
	maps.DeleteFunc(before, func(key, _ string) bool { return key == "*v1.Deployment shop" })
	unchanged("the third release again")
	after, err := client.Get[*v2.WebApp](t.Context(), c, kube.KeyOf(store))
	if err != nil || after.UID != store.UID || after.Spec.Contact != store.Spec.Contact || len(after.Annotations) > 0 {
		t.Errorf("the WebApp that was created in v2 is %+v, %v", after, err)
	}

	for _, name := range []string{"shop", "store"} {
		app := &v2.WebApp{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}}
		if err := client.Delete(t.Context(), c, app); err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, "the WebApp is gone", func(ctx context.Context) (bool, string) {
			_, err := client.Get[*v1.WebApp](ctx, c, kube.KeyOf(app))
			return errors.Is(err, client.ErrGone), fmt.Sprint(err)
		})
	}
	stop()
}
