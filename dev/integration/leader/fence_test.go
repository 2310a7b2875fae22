package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/election"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

// Two Pods compete for a fenced lease, and their processes also write without any check of the lease, as one does that
// was paused. From the first write of a new leader's work to its last one, the API server accepts no such write of the
// other Pod. The first write of the work is accepted.
func TestSmokeFencedWrites(t *testing.T) {
	t.Parallel()
	f := newFenced(t, local)
	f.fence()
	pods := []*fencedPod{f.pod("anna"), f.pod("bert")}
	var writing sync.WaitGroup
	defer writing.Wait()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for _, p := range pods {
		writing.Go(func() { p.writeUnchecked(ctx) }) // waited for above
	}
	var takeOvers []time.Duration
	rounds := testlength.Count(5, 40)
	for round := range rounds {
		p := pods[round%2]
		released, lead := p.campaign()
		first := lead()
		if first.err != nil {
			t.Fatalf("round %d: the first write of the work: %v", round, first.err)
		}
		takeOvers = append(takeOvers, first.after)
		<-time.After(50 * time.Millisecond) // the other Pod continues to write
		last := released()
		for _, other := range pods {
			for _, w := range other.acceptedWrites() {
				if other != p && w > first.version && w < last {
					t.Errorf("round %d: a write of %s was accepted at resource version %d, while %s worked from %d to %d", round, other.name, w, p.name, first.version, last)
				}
			}
		}
	}
	stop()
	writing.Wait()
	for _, p := range pods {
		accepted, rejected, unexpected := p.result()
		t.Logf("%s: %d writes were accepted, %d rejected", p.name, accepted, rejected)
		if accepted == 0 || rejected == 0 || unexpected != nil {
			t.Errorf("%s: %d writes were accepted, %d rejected, with the unexpected error %v", p.name, accepted, rejected, unexpected)
		}
	}
	slices.Sort(takeOvers)
	t.Logf("%d hand-overs: %s from the acquisition of the lease to the work (median, at most %s)", rounds, takeOvers[len(takeOvers)/2], takeOvers[len(takeOvers)-1])
}

// docs/operations.md shows the response to a write of a Pod that does not hold the lease.
func TestResponseToFencedWrite(t *testing.T) {
	t.Parallel()
	f := newFenced(t, local)
	f.fence()
	anna, bert := f.pod("anna"), f.pod("bert")
	release, lead := anna.campaign()
	defer release()
	if first := lead(); first.err != nil {
		t.Fatal(first.err)
	}
	_, err := bert.patch(t.Context(), bert.clients, `{"data":{"worker":"bert"}}`)
	if err == nil {
		t.Fatal("the write was accepted")
	}
	want, readErr := os.ReadFile(filepath.Join("testdata", "rejected.txt"))
	if readErr != nil {
		t.Fatal(readErr)
	}
	if got := strings.ReplaceAll(err.Error(), f.namespace, "shop") + "\n"; got != string(want) {
		t.Errorf("the response is\n%swant\n%s", got, want)
	}
}

// A cluster with two API servers: each leader sends its requests to its own one, and its process also writes unchecked to
// the other one. Each of the servers rejects the writes of the former leader, after a lag that the test logs.
func TestFenceWithTwoAPIServers(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, localcluster.Config{SecondServer: true})
	f := newFenced(t, cluster)
	f.fence()
	pods := []*fencedPod{f.pod("anna"), f.pod("bert")}
	pods[1].config.Host = cluster.SecondRESTConfig().Host // for its elector
	var clients [2][2]kubernetes.Interface                // of each Pod, for each server
	for i, p := range pods {
		for j, server := range []string{cluster.RESTConfig().Host, cluster.SecondRESTConfig().Host} {
			config := rest.CopyConfig(p.config)
			config.Host = server
			clients[i][j] = clustertest.Must[kubernetes.Interface](kubernetes.NewForConfig(config))(t)
			_, _ = p.patch(t.Context(), clients[i][j], `{}`) // opens the connection
		}
	}
	var lags [2][]time.Duration // of the leader's own server, and of the other one
	for round := range testlength.Count(4, 40) {
		release, lead := pods[round%2].campaign()
		if first := lead(); first.err != nil {
			t.Fatalf("round %d: %v", round, first.err)
		}
		worked := time.Now()
		var writing sync.WaitGroup
		for i := range lags {
			former := (round + 1) % 2
			writing.Go(func() { // waited for below
				lags[i] = append(lags[i], pods[former].lag(clients[former][(round+i)%2], worked))
			})
		}
		writing.Wait()
		release()
	}
	for i, server := range []string{"the leader's", "the other"} {
		slices.Sort(lags[i])
		t.Logf("%s API server accepted writes of the other Pod for %s after the leader's first write (median of %d, at most %s)",
			server, lags[i][len(lags[i])/2], len(lags[i]), lags[i][len(lags[i])-1])
	}
	if most := lags[0][len(lags[0])-1]; most > 0 {
		t.Errorf("the leader's API server accepted a write of the other Pod %s after the leader's first write", most)
	}
}

// lag writes to an API server until it rejects a write, and returns when the last accepted write began, since a time.
func (p *fencedPod) lag(clients kubernetes.Interface, since time.Time) (lag time.Duration) {
	for {
		began := time.Since(since)
		_, err := p.patch(p.Context(), clients, `{"data":{"lag":"`+began.String()+`"}}`)
		if err != nil {
			if !apierrors.IsInvalid(err) {
				p.Errorf("a write of %s: %v, want a rejection by the policy", p.name, err)
			}
			return lag
		}
		lag = began
	}
}

// BenchmarkFencedWrite measures one write of the leader after the other, with and without the policy.
func BenchmarkFencedWrite(b *testing.B) {
	for _, isFenced := range []bool{false, true} {
		b.Run(fmt.Sprintf("fenced=%v", isFenced), func(b *testing.B) {
			f := newFenced(b, local)
			p := f.pod("anna")
			if isFenced {
				f.fence()
				release, lead := p.campaign()
				defer release()
				if first := lead(); first.err != nil {
					b.Fatal(first.err)
				}
			}
			for n := 0; b.Loop(); n++ {
				if _, err := p.patch(b.Context(), p.clients, fmt.Sprintf(`{"data":{"n":"%d"}}`, n)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A policy that was deleted and applied again does not act, because the API server has stopped reading Leases: see
// ensureParamsForPolicyLocked in k8s.io/apiserver/pkg/admission/plugin/policy/generic/policy_source.go. No process works
// then.
func TestFenceAfterItsPolicyWasDeleted(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, localcluster.Config{})
	f := newFenced(t, cluster)
	f.fence()
	anna := f.pod("anna")
	release, lead := anna.campaign()
	if first := lead(); first.err != nil {
		t.Fatal(first.err)
	}
	release()
	name := "fence." + f.namespace + "." + election.LeaseName
	policies := f.clients.AdmissionregistrationV1()
	if err := errors.Join(
		policies.ValidatingAdmissionPolicyBindings().Delete(t.Context(), name, metav1.DeleteOptions{}),
		policies.ValidatingAdmissionPolicies().Delete(t.Context(), name, metav1.DeleteOptions{}),
		f.clients.RbacV1().RoleBindings(f.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}),
		f.clients.RbacV1().Roles(f.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}),
	); err != nil {
		t.Fatal(err)
	}
	<-time.After(3 * time.Second) // the API server reads the policies once a second
	f.fence()
	e, _ := anna.elector()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { // waited for below
		ended <- e.Run(ctx, func(context.Context) error { return errors.New("the work ran without a fence") })
	}()
	clustertest.Eventually(t, func() string {
		err := e.Ready()
		if err == nil || !strings.Contains(err.Error(), "no policy rejects") && !strings.Contains(err.Error(), "the policy rejects writes of the leader") {
			return fmt.Sprintf("the readiness is %v", err)
		}
		t.Log(err)
		return ""
	})
	<-time.After(2 * time.Second) // it stays so
	if e.Ready() == nil {
		t.Error("it became ready")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// fenced is a namespace with a lease, a service account and the objects of the fence.
type fenced struct {
	testing.TB
	cluster   *localcluster.Cluster
	client    *client.Client
	clients   kubernetes.Interface
	namespace string
}

func newFenced(tb testing.TB, cluster *localcluster.Cluster) *fenced {
	tb.Helper()
	c := clustertest.Client(tb, clustertest.Connect(tb, cluster.RESTConfig()))
	f := &fenced{TB: tb, cluster: cluster, client: c, namespace: clustertest.Namespace(tb, c)}
	var err error
	if f.clients, err = kubernetes.NewForConfig(cluster.RESTConfig()); err != nil {
		tb.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: f.namespace, Name: "operator"}
	create(f, &corev1.ServiceAccount{ObjectMeta: meta})
	create(f, &corev1.ConfigMap{ObjectMeta: meta})
	create(f, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: election.LeaseName}})
	create(f, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"patch"}}}})
	create(f, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "operator"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: "operator"}},
	})
	return f
}

func create[T kube.Object](f *fenced, obj T) T {
	f.Helper()
	created, err := client.Create(f.Context(), f.client, obj)
	if err != nil {
		f.Fatal(err)
	}
	return created
}

// fence applies the manifest. Its objects stay until the end of the cluster: when the last policy with a Lease as parameter
// is deleted, the API server never reads Leases for a later one (TestFenceAfterItsPolicyWasDeleted).
func (f *fenced) fence() {
	f.Helper()
	manifest, err := leader.FenceManifest(kube.Key{Namespace: f.namespace, Name: election.LeaseName}, kube.Key{Namespace: f.namespace, Name: "operator"})
	if err != nil {
		f.Fatal(err)
	}
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096); ; {
		obj := &unstructured.Unstructured{}
		if err := documents.Decode(obj); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			f.Fatal(err)
		}
		create(f, obj)
	}
}

// fencedPod is a Pod, and the process in it.
type fencedPod struct {
	*fenced
	name    string
	uid     string
	config  *rest.Config // with a token that is bound to the Pod
	clients kubernetes.Interface

	mu         sync.Mutex
	accepted   []int64 // guarded by mu; resource versions after the writes of writeUnchecked
	rejected   int     // guarded by mu
	unexpected error   // guarded by mu
}

func (f *fenced) pod(name string) *fencedPod {
	f.Helper()
	pod := create(f, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}, Spec: corev1.PodSpec{
		ServiceAccountName: "operator", Containers: []corev1.Container{{Name: "c", Image: "operator"}},
	}})
	return f.podWithToken(name, string(pod.UID), &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod.UID})
}

func (f *fenced) podWithToken(name, uid string, bound *authenticationv1.BoundObjectReference) *fencedPod {
	f.Helper()
	token, err := f.clients.CoreV1().ServiceAccounts(f.namespace).CreateToken(f.Context(), "operator",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}, metav1.CreateOptions{})
	if err != nil {
		f.Fatal(err)
	}
	config := rest.AnonymousClientConfig(f.cluster.RESTConfig())
	config.BearerToken, config.QPS = token.Status.Token, -1
	p := &fencedPod{fenced: f, name: name, uid: uid, config: config}
	if p.clients, err = kubernetes.NewForConfig(config); err != nil {
		f.Fatal(err)
	}
	return p
}

// writeUnchecked writes until ctx ends, whether or not the Pod holds the lease.
func (p *fencedPod) writeUnchecked(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		m, err := p.patch(ctx, p.clients, fmt.Sprintf(`{"data":{%q:"%d"}}`, p.name, n))
		p.mu.Lock()
		switch {
		case err == nil:
			p.accepted = append(p.accepted, versionOf(p, m))
		case apierrors.IsInvalid(err) && strings.Contains(err.Error(), "this Pod does not hold the lease"):
			p.rejected++
		case ctx.Err() == nil:
			p.unexpected = err
		}
		p.mu.Unlock()
	}
}

func (p *fencedPod) patch(ctx context.Context, clients kubernetes.Interface, body string) (*corev1.ConfigMap, error) {
	return clients.CoreV1().ConfigMaps(p.namespace).Patch(ctx, "operator", types.MergePatchType, []byte(body), metav1.PatchOptions{})
}

func (p *fencedPod) acceptedWrites() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.accepted)
}

func (p *fencedPod) result() (accepted, rejected int, unexpected error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.accepted), p.rejected, p.unexpected
}

// elector returns an Elector of the Pod's process.
func (p *fencedPod) elector() (*leader.Elector, *kube.Cluster) {
	p.Helper()
	cluster := clustertest.Connect(p, p.config)
	cluster.SetLogger(clustertest.Logger(p).With("pod", p.name))
	e, err := leader.New(leader.Config{
		Cluster: cluster, Namespace: p.namespace, Name: election.LeaseName, Fence: true, Identity: p.uid + "_" + string(uuid.NewUUID()),
		LeaseDuration: election.LeaseDuration, RenewDeadline: election.RenewDeadline, RetryPeriod: 50 * time.Millisecond,
	})
	if err != nil {
		p.Fatal(err)
	}
	return e, cluster
}

// led is the first write of a leader's work.
type led struct {
	version int64
	after   time.Duration // since the acquisition of the lease
	err     error
}

// campaign runs an Elector, whose work writes when it begins and before it ends. release ends the work, and returns the
// resource version of its last write.
func (p *fencedPod) campaign() (release func() int64, lead func() led) {
	p.Helper()
	e, cluster := p.elector()
	clients, err := kubernetes.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient())
	if err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.Context())
	begun, ended := make(chan led, 100), make(chan error, 1)
	last := int64(0)
	go func() { // waited for by release
		ended <- e.Run(ctx, func(ctx context.Context) error {
			first := led{after: time.Since(e.Status().Since)}
			m, err := p.patch(ctx, clients, `{"data":{"worker":"`+p.name+`"}}`)
			if first.err = err; err == nil {
				first.version = versionOf(p, m)
			}
			begun <- first
			<-ctx.Done()
			m, err = p.patch(context.WithoutCancel(ctx), clients, `{"data":{"worker":"none"}}`)
			if err == nil {
				last = versionOf(p, m)
			}
			return err
		})
	}()
	return func() int64 {
			cancel()
			if err := <-ended; err != nil {
				p.Errorf("%s: %v", p.name, err)
			}
			return last
		}, func() (first led) {
			p.Helper()
			select {
			case first = <-begun:
			case <-time.After(election.StepTimeout):
				p.Fatalf("%s does not lead: %v", p.name, e.Ready())
			}
			return first
		}
}

// Without the policy, no process leads, and the reason is in the readiness and the log.
func TestFenceIsRequired(t *testing.T) {
	t.Parallel()
	f := newFenced(t, local)
	// The role of the manifest, without the policy.
	create(f, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "admin"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: "operator"}},
	})
	anna, wrong := f.pod("anna"), f.pod("bert")
	wrong.uid = "6d3e8a52-6e9f-4f0b-9d6a-0f2f9f1f5a12"
	for _, test := range []struct {
		name  string
		pod   *fencedPod
		fence bool
		want  string
	}{
		{"no policy", anna, false, "apply the objects of leader.FenceManifest"},
		{"a token without a Pod", f.podWithToken("carl", "6d3e8a52-6e9f-4f0b-9d6a-0f2f9f1f5a11", nil), true, "the token of the request is not bound to a Pod"},
		{"a wrong uid", wrong, false, "need a token that is bound to the Pod"}, // the policy exists
	} {
		if test.fence {
			f.fence()
		}
		e, _ := test.pod.elector()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { // waited for below
			ended <- e.Run(ctx, func(context.Context) error { return errors.New("the work ran") })
		}()
		clustertest.Eventually(t, func() string {
			if err := e.Ready(); err == nil || !strings.Contains(err.Error(), test.want) {
				return fmt.Sprintf("%s: the readiness is %v, want %q in it", test.name, err, test.want)
			}
			return ""
		})
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// The policy acts on each kind of request that changes something, and on nothing else. A lease without a holder, or with
// one that a user has written, is not an exception.
func TestFencedRequests(t *testing.T) {
	t.Parallel()
	f := newFenced(t, local)
	f.fence()
	anna := f.pod("anna")
	create(f, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "admin-" + f.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: "operator"}},
	})
	rest := anna.clients.CoreV1().RESTClient()
	send := func(verb, path, body string) error {
		request := rest.Verb(verb).RequestURI(strings.ReplaceAll(path, "NS", f.namespace)).SetHeader("Content-Type", "application/json")
		if verb == "PATCH" {
			request.SetHeader("Content-Type", "application/merge-patch+json")
		}
		return request.Body([]byte(strings.ReplaceAll(body, "NS", f.namespace))).Do(f.Context()).Error()
	}
	const core, coordination = "/api/v1/namespaces/NS/", "/apis/coordination.k8s.io/v1/namespaces/NS/leases"
	rejected := [][3]string{
		{"POST", core + "configmaps", `{"metadata":{"name":"a"}}`},
		{"PATCH", core + "configmaps/operator", `{"data":{"a":"b"}}`},
		{"DELETE", core + "configmaps/operator", ""},
		{"DELETE", core + "configmaps", ""},
		{"PATCH", core + "pods/anna/status", `{"status":{"message":"a"}}`},
		{"PATCH", core + "pods/anna/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"e","image":"i","terminationMessagePolicy":"File"}]}}`},
		{"POST", core + "pods/anna/exec?command=a", ""},
		{"POST", core + "pods/anna/binding", `{"metadata":{"name":"anna"},"target":{"kind":"Node","name":"n"}}`},
		{"POST", core + "pods/anna/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"anna","namespace":"NS"}}`},
		{"POST", core + "serviceaccounts/operator/token", `{"spec":{}}`},
		{"POST", "/api/v1/namespaces", `{"metadata":{"name":"NS-a"}}`},
		{"PATCH", "/api/v1/namespaces/NS", `{"metadata":{"labels":{"a":"b"}}}`},
		{"POST", coordination, `{"metadata":{"name":"other"}}`},
		{"POST", coordination, `{"metadata":{"generateName":"lease"}}`},
		{"DELETE", coordination, ""}, // of the lease too; such a request has no name
		{"POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", `{"metadata":{"name":"lease"}}`},
	}
	allowed := [][3]string{
		{"GET", core + "configmaps/operator", ""},
		{"POST", core + "events", `{"metadata":{"generateName":"e"},"involvedObject":{"namespace":"NS"}}`},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`},
		{"POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"a"}}`},
		{"PATCH", coordination + "/lease", `{"metadata":{"labels":{"a":"b"}}}`},
	}
	uid := anna.uid
	for name, spec := range map[string]string{
		"no holder":           `{"spec":{"holderIdentity":null}}`,
		"empty holder":        `{"spec":{"holderIdentity":"","leaseDurationSeconds":1}}`,
		"another holder":      `{"spec":{"holderIdentity":"bert_x"}}`,
		"uid without the end": `{"spec":{"holderIdentity":"` + uid + `"}}`,
		"longer uid":          `{"spec":{"holderIdentity":"` + uid + `0_x"}}`,
		"expression":          `{"spec":{"holderIdentity":"' || true || '"}}`,
	} {
		if _, err := f.clients.CoordinationV1().Leases(f.namespace).Patch(t.Context(), election.LeaseName, types.MergePatchType, []byte(spec), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, func() string {
			if _, err := anna.patch(t.Context(), anna.clients, `{}`); !apierrors.IsInvalid(err) {
				return fmt.Sprintf("%s: %v", name, err)
			}
			return ""
		})
		for _, r := range rejected {
			if err := send(r[0], r[1], r[2]); err == nil || !strings.Contains(err.Error(), "this Pod does not hold the lease") {
				t.Errorf("%s: %s %s: %v, want a rejection by the policy", name, r[0], r[1], err)
			}
		}
		for _, r := range allowed {
			if err := send(r[0], r[1], r[2]); err != nil {
				t.Errorf("%s: %s %s: %v", name, r[0], r[1], err)
			}
		}
	}
}

// The leader may delete a collection of Leases in the namespace of its own one: such a request has no name.
func TestLeaderDeletesCollectionOfLeases(t *testing.T) {
	t.Parallel()
	f := newFenced(t, local)
	f.fence()
	anna := f.pod("anna")
	create(f, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "admin"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: "operator"}},
	})
	release, lead := anna.campaign()
	defer release()
	if first := lead(); first.err != nil {
		t.Fatal(first.err)
	}
	create(f, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "other", Labels: map[string]string{"app": "other"}}})
	err := anna.clients.CoordinationV1().Leases(f.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=other"})
	if err != nil {
		t.Error(err)
	}
}

// When the Lease is deleted, other clients can write. The candidate creates it again, and until a process leads the API
// server rejects the writes of all Pods of the operator.
func TestFenceWithoutLease(t *testing.T) {
	t.Parallel()
	f := newFenced(t, local)
	f.fence()
	anna := f.pod("anna")
	release, lead := anna.campaign()
	if first := lead(); first.err != nil {
		t.Fatal(first.err)
	}
	leases := f.clients.CoordinationV1().Leases(f.namespace)
	if err := leases.Delete(t.Context(), election.LeaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := anna.patch(t.Context(), f.clients, `{"data":{"admin":"yes"}}`); err != nil {
		t.Errorf("a write of another user without the lease: %v", err)
	}
	clustertest.Eventually(t, func() string {
		_, err := anna.patch(t.Context(), anna.clients, `{"data":{"late":"yes"}}`)
		if !apierrors.IsInvalid(err) {
			return fmt.Sprintf("a write of the former leader: %v, want a rejection", err)
		}
		return ""
	})
	if second := lead(); second.err != nil {
		t.Errorf("the first write of the next term: %v", second.err)
	}
	release()
}
