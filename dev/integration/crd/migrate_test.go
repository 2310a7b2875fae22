package crd

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/crdtest"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

// The schemas of the two versions of a Website: v2 calls spec.host spec.domain.
const (
	hosted   = `{type: object, properties: {spec: {type: object, properties: {host: {type: string}, size: {type: integer}}}}}`
	domained = `{type: object, properties: {spec: {type: object, properties: {domain: {type: string}, size: {type: integer}}}}}`
)

func deprecated(v *crdtest.Version) { v.Deprecated = true }

// convertWebsites starts a conversion webhook for Websites.
func convertWebsites(t *testing.T) *apiextensionsv1.CustomResourceConversion {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		review := &apiextensionsv1.ConversionReview{}
		if err := json.NewDecoder(req.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			obj := &unstructured.Unstructured{}
			if err := obj.UnmarshalJSON(raw.Raw); err != nil {
				review.Response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
				break
			}
			from, to := "host", "domain"
			if strings.HasSuffix(review.Request.DesiredAPIVersion, "v1") {
				from, to = to, from
			}
			if spec, ok := obj.Object["spec"].(map[string]any); ok && spec[from] != nil {
				spec[to] = spec[from]
				delete(spec, from)
			}
			obj.SetAPIVersion(review.Request.DesiredAPIVersion)
			review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Object: obj})
		}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // connections that end with a killed API server
	server.StartTLS()
	t.Cleanup(server.Close)
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				URL:      new(server.URL + "/convert"),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
		},
	}
}

// releases returns the definitions of four releases of a program: with v1; with v1 and v2; with v2 as the storage
// version; with v2.
func (e env) releases() []*apiextensionsv1.CustomResourceDefinition {
	e.Helper()
	conversion := convertWebsites(e.T)
	converted := func(d *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
		d.Spec.Conversion = conversion
		return d
	}
	return []*apiextensionsv1.CustomResourceDefinition{
		e.define("Website", e.version("v1", hosted)),
		converted(e.define("Website", e.version("v1", hosted, stored), e.version("v2", domained))),
		converted(e.define("Website", e.version("v1", hosted, deprecated), e.version("v2", domained, stored))),
		e.define("Website", e.version("v2", domained)),
	}
}

// released ensures the definitions of the first three releases in turn, and creates websites in the first one.
func (e env) released(websites int) []*apiextensionsv1.CustomResourceDefinition {
	e.Helper()
	releases := e.releases()
	e.ensure(releases[0])
	e.createWebsites(websites)
	e.ensure(releases[1])
	e.ensure(releases[2])
	return releases
}

// createWebsites creates n Websites in v1.
func (e env) createWebsites(n int) {
	e.Helper()
	const workers = 8
	var running sync.WaitGroup
	for worker := range workers {
		running.Go(func() { // waited for below
			for i := worker; i < n; i += workers {
				obj := e.object("Website", "v1", fmt.Sprintf("w%05d", i), map[string]any{"host": fmt.Sprint("host-", i), "size": int64(i)})
				if _, err := client.Create(e.Context(), e.client, obj); err != nil {
					e.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	if e.Failed() {
		e.FailNow()
	}
}

// storedIn returns the numbers of Websites by the version in which etcd has them.
func (e env) storedIn(cluster *localcluster.Cluster) map[string]int {
	e.Helper()
	values := etcdValues(e.T, cluster, "/registry/"+e.group+"/websites/")
	found := map[string]int{}
	for _, value := range values {
		var meta metav1.TypeMeta
		if err := json.Unmarshal(value, &meta); err != nil {
			e.Fatal(err)
		}
		found[strings.TrimPrefix(meta.APIVersion, e.group+"/")]++
	}
	return found
}

// websites returns all Websites in a version, by name.
func (e env) websites(version string) map[string]*unstructured.Unstructured {
	e.Helper()
	found := map[string]*unstructured.Unstructured{}
	kind := e.object("Website", version, "", nil).GroupVersionKind()
	for obj, err := range client.List[*unstructured.Unstructured](e.Context(), e.client, kube.Selection{Kind: kind}) {
		if err != nil {
			e.Fatal(err)
		}
		found[obj.GetName()] = obj
	}
	return found
}

// checkMigrated fails the test if the n objects of createWebsites are not all stored unchanged in v2.
func (e env) checkMigrated(cluster *localcluster.Cluster, n int) {
	e.Helper()
	if diff := cmp.Diff(map[string]int{"v2": n}, e.storedIn(cluster)); diff != "" {
		e.Errorf("objects in etcd by version (-want +got):\n%s", diff)
	}
	d := e.live("websites." + e.group)
	if diff := cmp.Diff([]string{"v2"}, d.Status.StoredVersions); diff != "" || len(d.Annotations) > 0 {
		e.Errorf("annotations %v, status.storedVersions (-want +got):\n%s", d.Annotations, diff)
	}
	websites := e.websites("v2")
	for i := range n {
		obj := websites[fmt.Sprintf("w%05d", i)]
		if obj == nil {
			e.Fatalf("object %d is lost", i)
		}
		if diff := cmp.Diff(map[string]any{"domain": fmt.Sprint("host-", i), "size": int64(i)}, obj.Object["spec"]); diff != "" || obj.GetGeneration() != 1 {
			e.Errorf("%s has generation %d, spec (-want +got):\n%s", obj.GetName(), obj.GetGeneration(), diff)
		}
	}
}

var errKilled = errors.New("the process was killed")

// killed returns a client and a context of a process that is killed at a write. It does its first writes; the next one is
// lost, or its response is.
func killed(t *testing.T, config *rest.Config, writes int32, afterwards bool) (context.Context, *client.Client) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	var n atomic.Int32
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodGet || n.Add(1) <= writes {
				return next.RoundTrip(req)
			}
			if afterwards && n.Load() == writes+1 {
				if res, err := next.RoundTrip(req); err == nil {
					_ = res.Body.Close()
				}
			}
			cancel(errKilled)
			return nil, errKilled
		})
	})
	return ctx, clustertest.Client(t, clustertest.Connect(t, config))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Each process is killed at its second write, until one ends. So there is a kill between any two writes.
func TestStorageMigrationKilledBetweenAnyTwoWrites(t *testing.T) {
	for name, test := range map[string]struct {
		afterwards bool
		processes  int
	}{
		// mark, objects, status, mark: each process does one write. It does not know of one whose response is lost, and its
		// next process finds that it was done.
		"write lost": {false, 8}, "response lost": {true, 4},
	} {
		t.Run(name, func(t *testing.T) {
			const objects = 5
			e := newEnv(t)
			releases := e.released(objects)
			definition := releases[0].Name
			before := e.websites("v2")
			processes, last := 0, 0
			for ended := false; !ended; processes++ {
				ctx, c := killed(t, local.RESTConfig(), 1, test.afterwards)
				_, err := crd.Migrate(ctx, c, definition)
				if ended = err == nil; !ended && !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
				found, stored := e.storedIn(local), e.live(definition).Status.StoredVersions
				if found["v1"]+found["v2"] != objects || found["v1"] > 0 && len(stored) < 2 || found["v2"] < last {
					t.Fatalf("process %d: etcd has %v, status.storedVersions is %q", processes, found, stored)
				}
				last = found["v2"]
			}
			e.checkMigrated(local, objects)
			if processes < test.processes {
				t.Errorf("%d processes, want %d", processes, test.processes)
			}
			for name, obj := range e.websites("v2") {
				if diff := cmp.Diff(before[name].GetManagedFields(), obj.GetManagedFields()); diff != "" || obj.GetResourceVersion() == before[name].GetResourceVersion() {
					t.Errorf("%s was not rewritten, or its managed fields changed (-want +got):\n%s", name, diff)
				}
			}
			e.ensure(releases[3])
			e.checkMigrated(local, objects)
		})
	}
}

// The strategy None changes the apiVersion only. The API server rewrites objects with values that are invalid in the new
// version. It does not if the object itself lacks a field.
func TestSmokeStorageMigrationWithoutWebhook(t *testing.T) {
	e := newEnv(t)
	e.ensure(e.define("Website", e.version("v1", host)))
	for i := range 3 {
		e.create(e.object("Website", "v1", fmt.Sprint("w", i), map[string]any{"host": "a"}))
	}
	const strict = `{type: object, REQUIRED properties: {status: {type: object}, spec: {type: object, required: [path], properties: {
		path: {type: string}, host: {type: string, minLength: 2, x-kubernetes-validations: [{rule: self != 'a'}]}}}}}`
	required := strings.Replace(strict, "REQUIRED", "required: [status],", 1)
	tolerated := strings.Replace(strict, "REQUIRED", "", 1)
	next := e.define("Website", e.version("v1", host, deprecated), e.version("v2", required, stored))
	if _, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{next}, crd.AllowNarrowing(), crd.AllowDataLoss("v2 to v1: spec.path")); err != nil {
		t.Fatal(err)
	}
	last := e.define("Website", e.version("v2", tolerated))
	var refused *crd.ChangeError
	if _, err := crd.Ensure(t.Context(), e.client, []*apiextensionsv1.CustomResourceDefinition{last}); !errors.As(err, &refused) ||
		!strings.Contains(err.Error(), "impossible: spec.versions[v1]") {
		t.Errorf("before the migration: %v", err)
	}
	if m, err := crd.Migrate(t.Context(), e.client, next.Name); err == nil || len(m.Failures) != 3 || !strings.Contains(err.Error(), "default/w2: ") ||
		!strings.Contains(err.Error(), "status: Required value") {
		t.Errorf("without a required field: %v, %v", m, err)
	}
	e.ensure(e.define("Website", e.version("v1", host, deprecated), e.version("v2", tolerated, stored)))
	if m, err := crd.Migrate(t.Context(), e.client, next.Name); err != nil || m.Rewritten != 3 || m.Total != 3 {
		t.Errorf("%v, %v", m, err)
	}
	if diff := cmp.Diff(map[string]int{"v2": 3}, e.storedIn(local)); diff != "" {
		t.Errorf("objects in etcd by version (-want +got):\n%s", diff)
	}
	e.ensure(last)
	if got := len(e.websites("v2")); got != 3 {
		t.Errorf("%d objects are left", got)
	}
}

// The API server is killed during a migration of many objects, and etcd is compacted.
func TestStorageMigrationSurvivesAPIServer(t *testing.T) {
	own, err := localcluster.Start(t.Context(), localcluster.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	e := newEnv(t)
	e.client = clustertest.Client(t, clustertest.Connect(t, own.RESTConfig()))
	objects := testlength.Count(300, 4000)
	releases := e.released(objects)

	kills := testlength.Count(1, 2)
	var patches, expired atomic.Int32
	kill := make(chan struct{}, 2)
	config := own.RESTConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodPatch {
				switch int(patches.Add(1)) {
				case objects / 4, objects * 3 / 4:
					kill <- struct{}{}
				case objects / 3:
					if err := own.Compact(e.Context()); err != nil {
						t.Error(err)
					}
				}
			}
			res, err := next.RoundTrip(req)
			if err == nil && res.StatusCode == http.StatusGone {
				expired.Add(1)
			}
			return res, err
		})
	})
	var running sync.WaitGroup
	running.Go(func() { // waited for below
		for range kills {
			select {
			case <-kill:
			case <-t.Context().Done():
				return
			}
			if err := errors.Join(own.Kill(), own.Restart(t.Context())); err != nil {
				t.Error(err)
			}
		}
	})
	c := clustertest.Client(t, clustertest.Connect(t, config))
	m, err := crd.Migrate(t.Context(), c, releases[0].Name)
	if err != nil || m.Done != objects {
		t.Fatalf("%v, %v", m, err)
	}
	running.Wait()
	if expired.Load() == 0 {
		t.Error("no list of a page returned 410")
	}
	e.checkMigrated(own, objects)
}

// A policy denies updates of some objects.
func TestStorageMigrationNamesDeniedObjects(t *testing.T) {
	e := newEnv(t)
	releases := e.released(5)
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: e.group},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{e.group}, APIVersions: []string{"*"}, Resources: []string{"*"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "object.metadata.name != 'w00002'", Message: "w00002 is frozen"}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: e.group},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: e.group, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	if _, err := client.Create(t.Context(), e.client, policy); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), e.client, binding); err != nil {
		t.Fatal(err)
	}
	dry, err := e.client.With(func(config *client.Config) { config.DryRun = true })
	if err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func() string { // the policy is in use some time after the write
		m, err := crd.Migrate(t.Context(), dry, releases[0].Name)
		if err == nil {
			return fmt.Sprint("a dry run finds no failure: ", m)
		}
		return ""
	})
	m, err := crd.Migrate(t.Context(), e.client, releases[0].Name)
	if err == nil || !strings.Contains(err.Error(), "default/w00002") || !strings.Contains(err.Error(), "w00002 is frozen") ||
		len(m.Failures) != 1 || m.Rewritten != 4 || m.Done != 5 {
		t.Errorf("%v, %v", m, err)
	}
	if diff := cmp.Diff(map[string]int{"v1": 1, "v2": 4}, e.storedIn(local)); diff != "" {
		t.Errorf("objects in etcd by version (-want +got):\n%s", diff)
	}
	if stored := e.live(releases[0].Name).Status.StoredVersions; len(stored) != 2 {
		t.Errorf("status.storedVersions is %q", stored)
	}
	if err := client.Delete(t.Context(), e.client, binding); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func() string {
		if m, err := crd.Migrate(t.Context(), e.client, releases[0].Name); err != nil {
			return fmt.Sprint(m, err)
		}
		return ""
	})
	e.checkMigrated(local, 5)
}

// The documented permissions suffice, and a missing one ends the migration at the first object.
func TestStorageMigrationPermissions(t *testing.T) {
	e := newEnv(t)
	releases := e.released(5)
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: e.group}, Rules: []rbacv1.PolicyRule{
		rule(apiextensionsv1.GroupName, "customresourcedefinitions", "get", "list", "watch", "patch"),
		rule(apiextensionsv1.GroupName, "customresourcedefinitions/status", "patch"),
		rule(e.group, "websites", "list"),
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: e.group},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: e.group},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: e.group}},
	}
	role, err := client.Create(t.Context(), e.client, role)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), e.client, binding); err != nil {
		t.Fatal(err)
	}
	config, err := local.User(t.Context(), e.group)
	if err != nil {
		t.Fatal(err)
	}
	c := clustertest.Client(t, clustertest.Connect(t, config))
	migrate := func(want string) (m crd.Migration) {
		t.Helper()
		clustertest.Eventually(t, func() string { // the API server uses rules some time after the write
			m, err = crd.Migrate(t.Context(), c, releases[0].Name)
			if text := fmt.Sprint(err); !strings.Contains(text, want) {
				return text
			}
			return ""
		})
		return m
	}
	if m := migrate("cannot patch resource"); m.Done != 0 || len(m.Failures) > 0 {
		t.Errorf("without the permission: %v", m)
	}
	role.Rules[2].Verbs = []string{"list", "patch"}
	if _, err := client.Update(t.Context(), e.client, role); err != nil {
		t.Fatal(err)
	}
	migrate("<nil>")
	e.checkMigrated(local, 5)
}

// The program of the previous release, which uses v1, works on migrated objects. It restarts, and installs its definition.
func TestPreviousReleaseWorksOnMigratedObjects(t *testing.T) {
	e := newEnv(t)
	releases := e.released(3)
	if _, err := crd.Migrate(t.Context(), e.client, releases[0].Name); err != nil {
		t.Fatal(err)
	}
	previous := newProgram(t)
	ensured, err := crd.Ensure(t.Context(), previous, []*apiextensionsv1.CustomResourceDefinition{releases[1]}, crd.AcceptNewer())
	if err != nil || !ensured[0].Newer || ensured[0].Outcome != client.Unchanged {
		t.Fatalf("%+v, %v", ensured, err)
	}
	for name, obj := range e.websites("v1") {
		spec := obj.Object["spec"].(map[string]any)
		if want := fmt.Sprint("host-", spec["size"]); spec["host"] != want {
			t.Errorf("%s has the spec %v, want the host %s", name, spec, want)
		}
		spec["host"] = "changed"
		if _, err := client.Update(t.Context(), previous, obj); err != nil {
			t.Error(err)
		}
	}
	if _, err := client.Create(t.Context(), previous, e.object("Website", "v1", "new", map[string]any{"host": "changed"})); err != nil {
		t.Error(err)
	}
	for name, obj := range e.websites("v2") {
		if domain, _, _ := unstructured.NestedString(obj.Object, "spec", "domain"); domain != "changed" {
			t.Errorf("%s has the domain %q", name, domain)
		}
	}
	if diff := cmp.Diff(map[string]int{"v2": 4}, e.storedIn(local)); diff != "" {
		t.Errorf("objects in etcd by version (-want +got):\n%s", diff)
	}
}
