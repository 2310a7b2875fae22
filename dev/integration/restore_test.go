package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

// When etcd is restored from a backup without a revision bump, resource versions go back. kube-apiserver accepts a
// watch from a future version and sends nothing. The informer detects this and shows the state of the API server.
func TestInformerDetectsRestoredEtcd(t *testing.T) {
	dir := t.TempDir()
	own := must(localcluster.Start(t.Context(), localcluster.Config{Dir: dir}))(t)
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	shared := local
	local = own // newEnv and connect use it; this test is not parallel
	defer func() { local = shared }()
	e := newEnv(t)
	e.putConfigMap("changed", "backed-up")
	e.putConfigMap("deleted", "backed-up")
	e.putConfigMap("reused", "backed-up")
	e.putConfigMap("replaced", "backed-up")
	versionOf := func(name string) int {
		obj := must(e.clients.CoreV1().ConfigMaps(e.namespace).Get(t.Context(), name, metav1.GetOptions{}))(t)
		return must(strconv.Atoi(obj.ResourceVersion))(t)
	}

	data, backup := filepath.Join(dir, "etcd"), filepath.Join(t.TempDir(), "backup")
	if err := own.Kill(); err != nil {
		t.Fatal(err)
	}
	copyFolder(t, data, backup)
	if err := own.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	var unreachable atomic.Bool
	config := own.RESTConfig()
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if unreachable.Load() {
				return nil, syscall.ECONNREFUSED
			}
			return rt.RoundTrip(r)
		})
	})
	cluster := connect(t, config)
	i := must(informer.New(informer.Config[*corev1.ConfigMap]{
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{e.namespace}}),
	}))(t)
	otherInformers := newRestoreInformers(t, cluster, e.namespace)
	c := must(client.New(client.Config{Cluster: cluster, FieldOwner: "tests", Informers: []client.Informer{i}}))(t)
	reused := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "reused"}, Data: map[string]string{"value": "lost"}}
	defer i.Join(t.Context())()
	for range 10 {
		e.putConfigMap("changed", "lost")
	}
	must(client.Apply(t.Context(), c, reused, client.Force()))(t)
	lost := versionOf("reused")
	for range 20 {
		e.putConfigMap("changed", "lost")
		e.putConfigMap("changed", "lost-too")
	}
	e.putConfigMap("created", "lost")
	for _, name := range []string{"deleted", "replaced"} {
		if err := e.clients.CoreV1().ConfigMaps(e.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	e.putConfigMap("replaced", "lost")
	e.createCRD("Lost") // its removal is the restore
	must(e.dynamic.Resource(widgets.GroupVersion().WithResource("losts")).Namespace(e.namespace).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgets.GroupVersion().String(), "kind": "Lost", "metadata": map[string]any{"name": "w"},
	}}, metav1.CreateOptions{}))(t)
	shows := func(want map[string]string) {
		t.Helper()
		began := time.Now()
		eventually(t, func() string {
			var s seen
			for name := range want {
				if obj, found, err := i.Get(kube.Key{Namespace: e.namespace, Name: name}); err == nil && found {
					s.add(name, obj.Data["value"])
				}
			}
			if n := i.Len(); n > len(s.values) {
				s.add("", "another object")
			}
			return s.lacks(want)
		})
		t.Logf("shown after %s, %+v", time.Since(began), i.Health())
	}
	shows(map[string]string{"changed": "lost-too", "created": "lost", "reused": "lost", "replaced": "lost"})
	otherInformers.show(t, e, 1)

	if applied := must(client.Apply(t.Context(), c, reused, client.Force()))(t); applied.Outcome != client.Unchanged {
		t.Errorf("the second apply: %s", applied.Outcome)
	}

	unreachable.Store(true)
	if err := own.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	copyFolder(t, backup, data)
	if err := own.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The version of the lost state is used again, for another state of the same object.
	reusedVersion := 0
	for n := 0; reusedVersion < lost; n++ {
		e.putConfigMap("reused", fmt.Sprint("again-", n%2))
		reusedVersion = versionOf("reused")
	}
	obj := must(e.clients.CoreV1().ConfigMaps(e.namespace).Get(t.Context(), "reused", metav1.GetOptions{}))(t)
	t.Logf("version %d was lost, version %d is there now", lost, reusedVersion)
	unreachable.Store(false)
	shows(map[string]string{"changed": "backed-up", "deleted": "backed-up", "reused": obj.Data["value"], "replaced": "backed-up"})
	otherInformers.show(t, e, 0)
	if applied := must(client.Apply(t.Context(), c, reused, client.Force()))(t); applied.Outcome != client.Updated {
		t.Errorf("the apply after the restore: %s", applied.Outcome)
	}
	e.putConfigMap("changed", "after")
	shows(map[string]string{"changed": "after", "deleted": "backed-up", "reused": "lost", "replaced": "backed-up"})
	otherInformers.show(t, e, 0)
}

// restoreInformers are informers with other configurations than the main one of the test.
type restoreInformers struct {
	metadata *informer.Informer[*metav1.PartialObjectMetadata]
	joined   *informer.Informer[*corev1.ConfigMap]
	optional *informer.Informer[*unstructured.Unstructured]
}

// newRestoreInformers returns informers that run until the test ends.
func newRestoreInformers(t *testing.T, cluster *kube.Cluster, namespace string) restoreInformers {
	t.Helper()
	own := kube.Selection{Namespaces: []string{namespace}}
	both := kube.Selection{Namespaces: []string{metav1.NamespaceDefault, namespace}}
	lost := kube.Selection{Kind: widgets.GroupVersion().WithKind("Lost")}
	r := restoreInformers{
		metadata: must(informer.New(informer.Config[*metav1.PartialObjectMetadata]{Retriever: informer.RetrieveMetadata[*corev1.ConfigMap](cluster, own)}))(t),
		joined:   must(informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, both)}))(t),
		optional: must(informer.New(informer.Config[*unstructured.Unstructured]{Retriever: informer.RetrieveSelected[*unstructured.Unstructured](cluster, lost), Optional: true}))(t),
	}
	t.Cleanup(r.metadata.Join(t.Context()))
	t.Cleanup(r.joined.Join(t.Context()))
	t.Cleanup(r.optional.Join(t.Context()))
	return r
}

// show waits until the informers show the same ConfigMaps and states as the API server, and a number of objects of the
// optional kind.
func (r restoreInformers) show(t *testing.T, e env, optional int) {
	t.Helper()
	eventually(t, func() string {
		all := must(e.clients.CoreV1().ConfigMaps(e.namespace).List(t.Context(), metav1.ListOptions{}))(t)
		for _, want := range all.Items {
			metadata, _, err := r.metadata.Get(kube.KeyOf(&want))
			joined, _, joinedErr := r.joined.Get(kube.KeyOf(&want))
			switch {
			case err != nil || joinedErr != nil || metadata == nil || joined == nil:
				return fmt.Sprintf("%s: %v, %v, %v, %v", want.Name, metadata, err, joined, joinedErr)
			case metadata.UID != want.UID || metadata.ResourceVersion != want.ResourceVersion || metadata.Labels["value"] != want.Labels["value"]:
				return fmt.Sprintf("the metadata of %s is %v, want %v", want.Name, metadata, want.ObjectMeta)
			case joined.UID != want.UID || joined.ResourceVersion != want.ResourceVersion || joined.Data["value"] != want.Data["value"]:
				return fmt.Sprintf("%s is %v, want %v", want.Name, joined, want)
			}
		}
		if n := r.metadata.Len(); n != len(all.Items) {
			return fmt.Sprintf("metadata of %d objects is shown, want %d", n, len(all.Items))
		}
		if n := r.optional.Len(); n != optional || r.optional.Ready() != nil || r.optional.Health().Degraded != (n == 0) {
			return fmt.Sprintf("%d objects of the optional kind are shown, want %d: %+v", n, optional, r.optional.Health())
		}
		return ""
	})
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// roundTrip is a function as a transport.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
