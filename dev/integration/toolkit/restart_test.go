package toolkit

import (
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/internal/apitest/requestlog"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
	"github.com/evenkeel-go/evenkeel/simulation"
)

var routeKind = schema.GroupVersionKind{Group: "restart.example.com", Version: "v1", Kind: "Route"}

// routes is a kind with every type of list.
const routes = `
type: object
properties:
  spec:
    type: object
    properties:
      size: {type: integer, default: 1}
      order: {type: array, items: {type: string}}
      hosts: {type: array, x-kubernetes-list-type: set, items: {type: string}}
      labels: {type: object, additionalProperties: {type: object, properties: {weight: {type: integer}}}}
      backends:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [port, protocol]
        items:
          type: object
          required: [port]
          properties:
            port: {type: integer}
            protocol: {type: string, default: TCP}
            weight: {type: integer, default: 7}
`

// restarts restarts a program, and compares the outcomes and requests of each process.
type restarts struct {
	*testing.T
	config *rest.Config
	plain  *client.Client // the client of another program
	owner  *corev1.ConfigMap
}

// newRestarts creates an owner, and defines the kind of routes. The cluster is nil if it is a real one.
func newRestarts(t *testing.T) (restarts, *simulation.Cluster) {
	t.Helper()
	config, simulated := anyCluster.Start(t, simulation.Config{WithoutControllers: true})
	r := restarts{T: t, config: config, plain: clustertest.Client(t, clustertest.Connect(t, config))}
	definition := fixture.Kind{GroupVersionKind: routeKind, Schema: routes}.Definition()
	definitions, err := crd.Parse(clustertest.Must(definition.MarshalJSON())(t))
	if err == nil {
		_, err = crd.Ensure(t.Context(), r.plain, definitions)
	}
	if err == nil {
		r.owner, err = client.Create(t.Context(), r.plain, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: clustertest.Namespace(t, r.plain), Name: "owner"},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return r, simulated
}

// start starts the program, and returns its set and its requests.
func (r restarts) start() (*owned.Set, *requestlog.Recording) {
	r.Helper()
	return startSet(r.T, r.config, "restarts", func(cluster *kube.Cluster) []watched.Kind {
		return []watched.Kind{
			watched.Of[*appsv1.Deployment](), watched.Of[*corev1.Service](), watched.Of[*corev1.Secret](), watched.Of[*corev1.ConfigMap](),
			objectsOf(cluster, routeKind, "restarts"),
		}
	})
}

// want applies children in a new process, and compares the outcomes other than Unchanged, by kind.
func (r restarts) want(children []owned.Child, want map[string]owned.ChildOutcome) {
	r.Helper()
	set, recording := r.start()
	report, err := set.Apply(r.Context(), r.owner, children...)
	if err != nil {
		r.Fatal(err)
	}
	got := map[string]owned.ChildOutcome{}
	for _, result := range report.Results {
		if result.Outcome != owned.Unchanged {
			got[result.Kind.Kind] = result.Outcome
		}
	}
	if !maps.Equal(got, want) {
		r.Errorf("got %v, want %v", got, want)
	}
	if requests := recording.Requests(); len(want) == 0 && len(requests) > 0 {
		r.Errorf("a restart makes requests: %v", requests)
	}
}

func (r restarts) key() kube.Key { return kube.KeyOf(r.owner) }

// children returns children with every kind of difference between the configuration and the values in the API server.
func (r restarts) children() []owned.Child {
	meta := metav1.ObjectMeta{Namespace: r.owner.Namespace, Name: r.owner.Name, Labels: map[string]string{"app": "web"}}
	selector := map[string]string{"app": "web"}
	route := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"order": []any{"b", "a"}, "hosts": []any{"y", "x"}, "labels": map[string]any{"a": map[string]any{"weight": int64(1)}, "b": map[string]any{}},
		"backends": []any{
			map[string]any{"port": int64(80), "weight": int64(1)},
			map[string]any{"port": int64(80), "protocol": "UDP"},
			map[string]any{"port": int64(443), "protocol": "TCP"},
		},
	}}}
	route.SetGroupVersionKind(routeKind)
	route.SetNamespace(meta.Namespace)
	route.SetName(meta.Name)
	container := func(name string, port int32) corev1.Container {
		return corev1.Container{
			Name: name, Image: name + ":1", Args: []string{"--a", "--b"},
			Env: []corev1.EnvVar{
				{Name: "B", Value: "1"},
				{Name: "A", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			},
			Ports:     []corev1.ContainerPort{{Name: name, ContainerPort: port}, {Name: name + "-udp", ContainerPort: port, Protocol: corev1.ProtocolUDP}},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1000m"), "memory": resource.MustParse("1024Mi")}},
		}
	}
	return owned.Of(
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selector},
				Spec: corev1.PodSpec{
					InitContainers: []corev1.Container{{Name: "second", Image: "i:1"}, {Name: "first", Image: "i:1"}},
					Containers:     []corev1.Container{container("web", 53), container("proxy", 54)},
					Volumes:        []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				},
			},
		}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Selector: selector,
			Ports:    []corev1.ServicePort{{Name: "dns", Port: 53}, {Name: "dns-udp", Port: 53, Protocol: corev1.ProtocolUDP}},
		}},
		&corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"password": "x"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name + "-config"}, Data: map[string]string{"a": "1"}},
		route,
	)
}

// A restart makes no request for unchanged children, and detects changes that other clients made while the program did
// not run.
func TestContract31_RestartsMakeNoRequestForUnchangedChildren(t *testing.T) {
	t.Parallel()
	r, _ := newRestarts(t)
	created := map[string]owned.ChildOutcome{}
	for _, kind := range []string{"Deployment", "Service", "Secret", "ConfigMap", "Route"} {
		created[kind] = owned.Created
	}
	r.want(r.children(), created)
	r.want(r.children(), nil)

	for name, test := range r.drifts() {
		r.T = t
		test.happens()
		r.want(r.children(), map[string]owned.ChildOutcome{test.kind: owned.Updated})
		r.want(r.children(), nil)
		if t.Failed() {
			t.Fatalf("after: %s", name)
		}
	}
	// A new version of the program applies other values to the same fields.
	scaled := r.children()
	scaled[0].Object.(*appsv1.Deployment).Spec.Replicas = new(int32(3))
	r.want(scaled, map[string]owned.ChildOutcome{"Deployment": owned.Updated})
	r.want(scaled, nil)
	// The next version applies other fields.
	changed := r.children()
	changed[0].Object.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Args = nil
	delete(changed[1].Object.(*corev1.Service).Labels, "app") // all children share the map, so no child has the label
	r.want(changed, map[string]owned.ChildOutcome{"Deployment": owned.Updated, "Service": owned.Updated, "Secret": owned.Updated})
	r.want(changed, nil)
	deployment, err := client.Get[*appsv1.Deployment](t.Context(), r.plain, r.key())
	if err != nil || deployment.Spec.Template.Spec.Containers[0].Args != nil || deployment.Labels["app"] != "" {
		t.Errorf("fields that are not applied any longer have stayed: %v, %v", deployment, err)
	}
}

type drift struct {
	kind    string
	happens func()
}

// drifts returns changes that other clients make to children while the program does not run.
func (r restarts) drifts() map[string]drift {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: r.owner.Namespace, Name: r.owner.Name}}
	service := &corev1.Service{ObjectMeta: deployment.ObjectMeta}
	secret := &corev1.Secret{ObjectMeta: deployment.ObjectMeta}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.owner.Namespace, Name: r.owner.Name + "-config"}}
	route := &unstructured.Unstructured{}
	route.SetGroupVersionKind(routeKind)
	route.SetNamespace(r.owner.Namespace)
	route.SetName(r.owner.Name)
	patch := func(kind string, obj kube.Object, patch string) drift {
		return drift{kind, func() {
			as := types.StrategicMergePatchType
			if kind == "Route" {
				as = types.MergePatchType
			}
			if patch[0] == '[' {
				as = types.JSONPatchType
			}
			r.done(client.Patch(r.Context(), r.plain, obj, client.RawPatch(as, []byte(patch)), client.FieldOwner("kubectl-edit")))
		}}
	}
	apply := func(kind string, obj *unstructured.Unstructured, owner string) drift {
		return drift{kind, func() {
			live, err := client.Get[*unstructured.Unstructured](r.Context(), r.plain, kube.KeyOf(obj), client.OfKind(routeKind))
			if err != nil {
				r.Fatal(err)
			}
			annotations := live.GetAnnotations()
			delete(annotations, "evenkeel.dev/configuration")
			obj := obj.DeepCopy()
			obj.SetAnnotations(annotations)
			obj.SetLabels(live.GetLabels())
			obj.SetOwnerReferences(live.GetOwnerReferences())
			_, err = client.Apply(r.Context(), r.plain, obj, client.FieldOwner(owner), client.Force())
			r.done(nil, err)
		}}
	}
	sized := route.DeepCopy()
	sized.Object["spec"] = map[string]any{"order": []any{"z"}}
	const init = "/spec/template/spec/initContainers/"
	return map[string]drift{
		"a value is changed":               patch("Deployment", deployment, `{"spec":{"replicas":5}}`),
		"an image is changed":              patch("Deployment", deployment, `{"spec":{"template":{"spec":{"containers":[{"name":"proxy","image":"evil:1"}]}}}}`),
		"a list is changed":                patch("Deployment", deployment, `{"spec":{"template":{"spec":{"containers":[{"name":"web","args":["--c"]}]}}}}`),
		"a variable is removed":            patch("Deployment", deployment, `{"spec":{"template":{"spec":{"containers":[{"name":"web","env":[{"name":"B","$patch":"delete"}]}]}}}}`),
		"elements are reordered":           patch("Deployment", deployment, `[{"op":"move","from":"`+init+`1","path":"`+init+`0"}]`),
		"a whole map is removed":           patch("Service", service, `{"spec":{"selector":null}}`),
		"an entry of a whole map is added": patch("Service", service, `{"spec":{"selector":{"tier":"x"}}}`),
		"a label is changed":               patch("Service", service, `{"metadata":{"labels":{"app":"other"}}}`),
		"the owner reference is removed":   patch("Service", service, `[{"op":"remove","path":"/metadata/ownerReferences"}]`),
		"secret data is changed":           patch("Secret", secret, `{"stringData":{"password":"y"}}`),
		"data is removed":                  patch("ConfigMap", config, `{"data":{"a":null}}`),
		"the hash is changed":              patch("ConfigMap", config, `{"metadata":{"annotations":{"evenkeel.dev/configuration":"x"}}}`),
		"managedFields are removed":        patch("ConfigMap", config, `[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`),
		"a list of a custom resource":      patch("Route", route, `{"spec":{"order":["b"]}}`),
		"a set of a custom resource":       patch("Route", route, `{"spec":{"hosts":["x"]}}`),
		"an element of a custom resource":  patch("Route", route, `[{"op":"replace","path":"/spec/backends/0/weight","value":9}]`),
		"another applier takes a field":    apply("Route", sized, "other"),
		"another program has the name":     apply("Route", sized, "restarts"),
	}
}

func (r restarts) done(_ kube.Object, err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// Fields that other clients add to a child stay, and cause no request.
func TestRestartLeavesFieldsOfOtherClients(t *testing.T) {
	t.Parallel()
	r, _ := newRestarts(t)
	set, _ := r.start()
	if _, err := set.Apply(t.Context(), r.owner, r.children()...); err != nil {
		t.Fatal(err)
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: r.owner.Namespace, Name: r.owner.Name}}
	for _, patch := range []string{
		`{"spec":{"paused":true}}`, `{"metadata":{"labels":{"other":"x"}}}`,
		`{"spec":{"template":{"spec":{"containers":[{"name":"sidecar","image":"s:1"}]}}}}`,
		`{"spec":{"template":{"spec":{"containers":[{"name":"web","env":[{"name":"C","value":"3"}]}]}}}}`,
	} {
		r.done(client.Patch(t.Context(), r.plain, deployment, client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.FieldOwner("kubectl-edit")))
	}
	r.want(r.children(), nil)
}
