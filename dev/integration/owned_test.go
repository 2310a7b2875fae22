package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// causes records why each object was handled.
type causes struct {
	mu  sync.Mutex
	all map[string][]string
}

func (c *causes) note(ctx context.Context, name string) {
	run, _ := controller.RunFrom(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string][]string{}
	}
	c.all[name] = append(c.all[name], run.Causes.String())
}

// lacks returns "" if a run of the object had a cause that contains all parts.
func (c *causes) lacks(name string, parts ...string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.all[name], func(text string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
	}) {
		return ""
	}
	return fmt.Sprintf("%s was handled because of %q, want %q", name, c.all[name], parts)
}

func (c *causes) count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all[name])
}

// putDeployment creates a Deployment that owner owns, with labels.
func (e env) putDeployment(name string, owner *corev1.ConfigMap, labels map[string]string) {
	e.Helper()
	isController := true
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
	if owner != nil {
		d.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: &isController}}
	}
	must(e.clients.AppsV1().Deployments(e.namespace).Create(e.Context(), d, metav1.CreateOptions{}))(e.T)
}

// A controller of ConfigMaps receives changes of related Deployments, Secrets and ConfigMaps, and creates an owned
// object again after another client has deleted it.
func TestSmokeSourcesEndToEnd(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, name := range []string{"owner", "labelled", "mapped", "template"} {
		e.putConfigMap(name, "1")
	}
	maps := e.clients.CoreV1().ConfigMaps(e.namespace)
	owner := must(maps.Get(t.Context(), "owner", metav1.GetOptions{}))(t)
	config := local.RESTConfig()
	asked := count(config, "deployments")
	cluster := connect(t, config)
	selection := kube.Selection{Namespaces: []string{e.namespace}}
	configMaps := must(informer.New(informer.Config[*corev1.ConfigMap]{
		Name: "maps", Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, selection),
	}))(t)
	deployments := must(informer.New(informer.Config[*metav1.PartialObjectMetadata]{
		Name: "deployments", Retriever: informer.RetrieveMetadata[*appsv1.Deployment](cluster, selection),
	}))(t)
	secrets := must(informer.New(informer.Config[*metav1.PartialObjectMetadata]{
		Retriever: informer.RetrieveMetadata[*corev1.Secret](cluster, kube.Selection{}),
	}))(t)
	var seen causes
	ctrl, _ := run(t, controller.Config[*corev1.ConfigMap]{
		Name: "owners", ResyncInterval: -1, Informer: configMaps,
		Sources: []controller.Source{
			source.Owned[*appsv1.Deployment](cluster),
			source.OwnerLabel(secrets, "evenkeel.dev/owner"),
			source.Mapped(configMaps, func(m *corev1.ConfigMap) []kube.Key {
				if m.Name != "template" {
					return nil
				}
				return []kube.Key{{Namespace: m.Namespace, Name: m.Data["value"]}}
			}),
		},
		Reads: []informer.Any{deployments},
		Handler: func(ctx context.Context, m *corev1.ConfigMap) error {
			seen.note(ctx, m.Name)
			return nil
		},
	})
	eventually(t, func() string { return seen.lacks("owner", "listed") + seen.lacks("mapped", "listed") })
	if err := ctrl.Ready(); err != nil {
		t.Error(err)
	}

	e.putDeployment("child", owner, nil)
	eventually(t, func() string { return seen.lacks("owner", e.namespace+"/child added") })
	before := seen.count("owner")
	e.putDeployment("stranger", nil, nil)
	if err := e.clients.AppsV1().Deployments(e.namespace).Delete(t.Context(), "child", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string { return seen.lacks("owner", e.namespace+"/child deleted") })
	if n := seen.count("owner") - before; n != 1 {
		t.Errorf("the owner was handled %d times for the end of its child, want once", n)
	}

	must(e.clients.CoreV1().Secrets(e.namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{"evenkeel.dev/owner": "labelled"}},
	}, metav1.CreateOptions{}))(t)
	eventually(t, func() string { return seen.lacks("labelled", e.namespace+"/s added") })

	e.putConfigMap("template", "mapped")
	eventually(t, func() string { return seen.lacks("mapped", e.namespace+"/template updated") })
	mapped := seen.count("mapped")
	e.putConfigMap("template", "nothing") // the former reference is enqueued too
	eventually(t, func() string {
		if seen.count("mapped") == mapped {
			return "what the template no longer points to was not handled"
		}
		return ""
	})

	watches, lists := asked.seen()
	for _, accept := range watches {
		if !strings.Contains(accept, "PartialObjectMetadata") {
			t.Errorf("a watch of Deployments asks for %q: more than metadata", accept)
		}
	}
	if len(watches) != 2 || lists != 0 {
		t.Errorf("%d watches and %d lists of Deployments; want one watch of each informer", len(watches), lists)
	}
	eventually(t, func() string {
		if obj, found, err := deployments.Get(kube.Key{Namespace: e.namespace, Name: "stranger"}); !found || err != nil || obj.Kind != "Deployment" {
			return fmt.Sprintf("the metadata of the stranger: %v, %v, %v", obj, found, err)
		}
		return ""
	})
}

// Sources can be added to a running controller, for example for a kind that is installed later.
func TestAddSourceToRunningController(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.putConfigMap("owner", "1")
	owner := must(e.clients.CoreV1().ConfigMaps(e.namespace).Get(t.Context(), "owner", metav1.GetOptions{}))(t)
	cluster := connect(t, local.RESTConfig())
	var seen causes
	ctrl, _ := run(t, controller.Config[*corev1.ConfigMap]{
		Name: "adding", ResyncInterval: -1,
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{e.namespace}}),
		Handler: func(ctx context.Context, m *corev1.ConfigMap) error {
			seen.note(ctx, m.Name)
			return nil
		},
	})
	eventually(t, func() string { return seen.lacks("owner", "listed") })
	e.putDeployment("first", owner, nil)
	remove := must(ctrl.AddSource(source.Owned[*appsv1.Deployment](cluster)))(t)
	eventually(t, func() string { return seen.lacks("owner", e.namespace+"/first listed") })
	remove()
	before := seen.count("owner")
	e.putDeployment("second", owner, nil)
	e.putConfigMap("owner", "2")
	eventually(t, func() string { return seen.lacks("owner", "updated") })
	if n := seen.count("owner") - before; n != 1 || seen.lacks("owner", "second") == "" {
		t.Errorf("handled %d times after the source was removed, want once for the update", n)
	}
}
