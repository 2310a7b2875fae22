package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/source"
)

// shop is an operator of Websites and its API server. Each Website has a Deployment of the same name. docs/causes.md
// shows the operator's explanations.
type shop struct {
	*apitest.Server
	t       *testing.T
	cluster *kube.Cluster
	client  dynamic.Interface // the operator's client
	config  controller.Config[unstructuredObject]
	logs    journal
	*controller.Controller[unstructuredObject]
}

func websites() schema.GroupVersionResource { return apitest.Version().WithResource("websites") }

func deployments() schema.GroupVersionResource {
	return appsv1.SchemeGroupVersion.WithResource("deployments")
}

func website() schema.GroupVersionKind { return websites().GroupVersion().WithKind("Website") }

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, Server: apitest.New(apitest.Websites(), apitest.Deployments())}
	s.cluster, s.client = apitest.Connect(s.Server.Config("website-operator"))
	children, err := informer.New(informer.Config[unstructuredObject]{
		Name: "deployments", Logger: slog.New(slog.DiscardHandler),
		Retriever: informer.RetrieveSelected[unstructuredObject](s.cluster, kube.Selection{Kind: appsv1.SchemeGroupVersion.WithKind("Deployment")}),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.slow("", 8*time.Millisecond)
	s.config = controller.Config[unstructuredObject]{
		Name:      "websites",
		Retriever: informer.RetrieveSelected[unstructuredObject](s.cluster, kube.Selection{Kind: website()}),
		Handler: func(ctx context.Context, site unstructuredObject) error {
			return s.reconcile(ctx, children, site)
		},
		Sources:        []controller.Source{source.OwnedIn(children, source.Owner{Kind: website().GroupKind()})},
		ResyncInterval: -1,
		Retry:          retry.Config{Every: retry.Policy{Base: time.Second, Jitter: -1}},
		Logger:         s.logs.logger(slog.LevelInfo),
	}
	return s
}

// reconcile creates a site's Deployment, and writes the number of ready replicas into the site's status.
func (s *shop) reconcile(ctx context.Context, children *informer.Informer[unstructuredObject], site unstructuredObject) error {
	time.Sleep(12 * time.Millisecond) // simulates work
	key := kube.KeyOf(site)
	replicas, _, _ := unstructured.NestedInt64(site.Object, "spec", "replicas")
	child, found, err := children.Get(key)
	if err != nil {
		return err
	}
	if !found {
		child = &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": replicas}}}
		child.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
		child.SetName(key.Name)
		child.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(site, website())})
		_, err := s.client.Resource(deployments()).Namespace(key.Namespace).Create(ctx, child, metav1.CreateOptions{})
		return err
	}
	if has, _, _ := unstructured.NestedInt64(child.Object, "spec", "replicas"); has != replicas {
		if err := s.patch(ctx, deployments(), key, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)); err != nil {
			return err
		}
	}
	ready, _, _ := unstructured.NestedInt64(child.Object, "status", "readyReplicas")
	if told, _, _ := unstructured.NestedInt64(site.Object, "status", "ready"); told != ready {
		if err := s.patch(ctx, websites(), key, fmt.Sprintf(`{"status":{"ready":%d}}`, ready), "status"); err != nil {
			return err
		}
	}
	if ready < replicas {
		return controller.RequeueAfter(10*time.Minute, "the replicas are not ready")
	}
	return nil
}

func (s *shop) patch(ctx context.Context, resource schema.GroupVersionResource, key kube.Key, patch string, subresources ...string) error {
	_, err := s.client.Resource(resource).Namespace(key.Namespace).
		Patch(ctx, key.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		return fmt.Errorf("patch %s %s: %w", resource.Resource, key, err)
	}
	return nil
}

// problems returns the controller's problems, one a line.
func (s *shop) problems() string {
	var text strings.Builder
	for _, problem := range s.Problems() {
		fmt.Fprintln(&text, problem)
	}
	return text.String()
}

// fail replaces the handler by one that always fails.
func (s *shop) fail() {
	s.handler(func(context.Context, unstructuredObject) error { return errors.New("the registry does not answer") })
}

// handler replaces the operator's handler.
func (s *shop) handler(handle func(ctx context.Context, site unstructuredObject) error) {
	s.config.Handler = handle
}

// site creates a site, or changes its spec, as kubectl does.
func (s *shop) site(name string, replicas int) { s.siteIn("shop", name, replicas) }

func (s *shop) siteIn(namespace, name string, replicas int) {
	s.Edit("websites", kube.Key{Namespace: namespace, Name: name}, "kubectl-edit", func(obj map[string]any) bool {
		obj["spec"] = map[string]any{"replicas": int64(replicas)}
		return true
	})
}

// touch changes a site's annotations, as kubectl does.
func (s *shop) touch(name string) {
	s.Edit("websites", kube.Key{Namespace: "shop", Name: name}, "kubectl-annotate", func(obj map[string]any) bool {
		obj["metadata"].(map[string]any)["annotations"] = map[string]any{"at": time.Now().String()}
		return true
	})
}

// rollout makes the replicas of a Deployment ready, as Kubernetes does.
func (s *shop) rollout(name string, ready int) {
	s.Edit("deployments", kube.Key{Namespace: "shop", Name: name}, "kube-controller-manager", func(obj map[string]any) bool {
		obj["status"] = map[string]any{"readyReplicas": int64(ready)}
		return true
	})
}

// slow delays the API server's responses to requests with a method; "" means any method.
func (s *shop) slow(method string, takes time.Duration) {
	s.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if strings.Contains(req.Method, method) && req.URL.Query().Get("watch") == "" {
			time.Sleep(takes)
		}
		return do(), nil
	})
}

// open starts the operator.
func (s *shop) open() {
	s.t.Helper()
	ctrl, err := controller.New(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Controller = ctrl
	start(s.t, ctrl)
	time.Sleep(1100 * time.Millisecond) // avoids the time of a retry
}

// explain returns the explanation of a site that an operator's author sees.
func (s *shop) explain(name string) string {
	synctest.Wait()
	return s.Explain(kube.Key{Namespace: "shop", Name: name})
}

// logged returns the log lines of the controller since the last call.
func (s *shop) logged() string {
	synctest.Wait()
	lines := slices.DeleteFunc(s.logs.take(), func(line string) bool { return !strings.Contains(line, "controller=websites") })
	return strings.Join(lines, "\n")
}
