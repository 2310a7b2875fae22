package leader

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
)

// fenced makes an Elector use a fence, as the Pod whose uid is the name of its client.
func fenced(c *Config) {
	c.Identity, c.Fence = c.Identity+"_"+string(uuid.NewUUID()), true
}

// Work begins only when the API server sees the new holder, however late that is, and with a further term too.
func TestContract06_FencedWorkWaitsForTheAPIServer(t *testing.T) {
	t.Parallel()
	for _, lag := range []time.Duration{0, 3 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			s.policy = &policy{lag: lag}
			for _, name := range []string{"a", "b", "a"} {
				e := newTestElector(t, s.client(name), fenced)
				var began time.Duration
				r := run(t, e, func(ctx context.Context) error {
					began = time.Since(s.start)
					s.mu.Lock()
					if err := s.admit(name); err != nil {
						t.Errorf("lag %s: the work began, and the API server rejects its writes: %v", lag, err)
					}
					s.mu.Unlock()
					return untilDone(ctx)
				})
				pass(10 * time.Second)
				if err := e.Ready(); err != nil || began == 0 && lag > 0 {
					t.Errorf("lag %s: after 10 s the leader is not ready or does not work: %v", lag, err)
				}
				r.stopWithoutError(t)
				pass(2 * lag)
			}
		})
	}
}

// An Elector leads only if a policy rejects its writes before. The reason is logged once, and is in Status and Ready.
func TestFenceWithoutPolicy(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before func(ctx context.Context, verb string) error
		want   string
	}{
		"no policy":     {nil, "apply the objects of leader.FenceManifest"},
		"no permission": {forbid("probe"), "a Role must allow get, create and update of leases"},
		"no response": {func(ctx context.Context, verb string) error {
			if verb == "probe" {
				return hang(ctx, verb)
			}
			return nil
		}, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				c := s.client("a")
				c.fail(tt.before)
				var log logs
				e := newTestElector(t, c, fenced, log.into)
				worked := false
				r := run(t, e, func(ctx context.Context) error {
					worked = true
					return untilDone(ctx)
				})
				pass(time.Minute)
				status := e.Status()
				if err := e.Ready(); err == nil || !strings.Contains(err.Error(), tt.want) || status.Err == nil || !strings.Contains(err.Error(), status.Err.Error()) {
					t.Errorf("Ready returned %v, want %q and %v in it", err, tt.want, status.Err)
				}
				if status.state != stateStandby || worked || len(s.writesBy("a")) > 0 {
					t.Errorf("without a fence it is %s, worked: %v, wrote %v", status.state, worked, s.writesBy("a"))
				}
				if n := log.count("level=WARN"); n != 1 {
					t.Errorf("logged %d warnings in a minute, want 1:\n%s", n, &log.buffer)
				}
				s.mu.Lock()
				s.policy = &policy{}
				s.mu.Unlock()
				c.fail(nil)
				pass(10 * time.Second)
				if err := e.Ready(); err != nil || !worked {
					t.Errorf("with a fence: worked: %v, not ready: %v", worked, err)
				}
				r.stopWithoutError(t)
			})
		})
	}
}

// A standby that has no fence is not ready, although it could lead only later.
func TestStandbyWithoutPolicyIsNotReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		leads := run(t, newTestElector(t, s.client("unfenced")), untilDone)
		pass(time.Second)
		e := newTestElector(t, s.client("a"), fenced)
		r := run(t, e, untilDone)
		pass(10 * time.Second)
		if err := e.Ready(); err == nil || !strings.Contains(err.Error(), "FenceManifest") {
			t.Errorf("Ready returned %v", err)
		}
		for _, r := range []*running{r, leads} {
			r.stopWithoutError(t)
		}
	})
}

// A leader that waits for the fence does not work. It ends when it loses the lease, and releases the lease when it is
// stopped.
func TestShutdownWhileWaitingForFence(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]bool{"the lease is lost": true, "the process is stopped": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.policy = &policy{lag: 24 * time.Hour}
				c := s.client("a")
				e := newTestElector(t, c, fenced)
				r := run(t, e, func(context.Context) error { return errors.New("the work ran") })
				pass(10 * time.Second)
				if err := e.Ready(); e.Status().state != stateLeading || err == nil || !strings.Contains(err.Error(), "bound to the Pod a") {
					t.Errorf("it is %s, and Ready returned %v", e.Status().state, err)
				}
				if lose {
					c.fail(hang)
					pass(time.Minute)
					if state := e.Status().state; state != stateStandby {
						t.Errorf("without renewals it is %s", state)
					}
				}
				r.stopWithoutError(t)
				if holder := s.holder(); !lose && holder != "" {
					t.Errorf("the holder after the stop is %q", holder)
				}
			})
		})
	}
}

// A leader whose writes the policy rejects, because it has the uid of another Pod, gives the lease up, and another candidate leads.
// It is never ready.
func TestLeaderRejectedByFenceReleasesLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.policy = &policy{}
		var log logs
		wrong := newTestElector(t, s.client("a"), fenced, log.into, func(c *Config) { c.Identity = "wrong_1" })
		first := run(t, wrong, func(context.Context) error { return errors.New("the work ran") })
		pass(10 * time.Second)
		e := newTestElector(t, s.client("b"), fenced)
		worked := false
		second := run(t, e, func(ctx context.Context) error {
			worked = true
			return untilDone(ctx)
		})
		pass(2 * time.Second)
		if err := wrong.Ready(); wrong.Status().state != stateLeading || err == nil || !strings.Contains(err.Error(), "bound to the Pod wrong") {
			t.Errorf("the leader that is rejected is %s: %v", wrong.Status().state, err)
		}
		pass(20 * time.Second)
		if !worked || e.Ready() != nil || wrong.Status().state != stateStandby {
			t.Errorf("the other candidate works: %v, it is %s: %v", worked, e.Status().state, e.Ready())
		}
		second.stopWithoutError(t)
		minutes := testlength.Count(10, 60)
		pass(time.Duration(minutes) * time.Minute)
		if n := log.count("leadership given up"); n < minutes*5/6 || wrong.Ready() == nil {
			t.Errorf("without another candidate it led %d times in %d minutes, and is ready: %v", n, minutes, wrong.Ready() == nil)
		}
		first.stopWithoutError(t)
	})
}

// A token that is not bound to a Pod can never write, so its process does not acquire the lease.
func TestFenceWithUnboundToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.policy = &policy{unbound: true}
		e := newTestElector(t, s.client("a"), fenced)
		r := run(t, e, untilDone)
		pass(time.Minute)
		if err := e.Ready(); err == nil || !strings.Contains(err.Error(), "not bound to a Pod") || len(s.writesBy("a")) > 0 {
			t.Errorf("Ready returned %v, and it wrote %v", err, s.writesBy("a"))
		}
		r.stopWithoutError(t)
	})
}

// A process that is started again in the same Pod leads when the lease of the previous one has expired, although the
// policy accepts its writes before.
func TestFenceOfRestartedContainer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.policy = &policy{}
		dying := s.client("a")
		first := run(t, newTestElector(t, dying, fenced), untilDone)
		pass(time.Second)
		dying.fail(hang)
		first.stopWithoutError(t)
		e := newTestElector(t, s.client("a"), fenced)
		second := run(t, e, untilDone)
		pass(time.Minute)
		if status := e.Status(); status.state != stateLeading || e.Ready() != nil {
			t.Errorf("the second process is %s: %v", status.state, e.Ready())
		}
		second.stopWithoutError(t)
	})
}

func TestFenceConfig(t *testing.T) {
	// The uid of the Pod is in the environment, so this test is not parallel.
	t.Setenv("POD_UID", "from-env")
	e, err := New(Config{Cluster: connect(t, nil), Name: "printer", Namespace: "prod", Fence: true})
	if err != nil || !strings.HasPrefix(e.config.Identity, "from-env_") {
		t.Errorf("the identity is %q, %v", e.config.Identity, err)
	}
	if e, err = New(Config{Cluster: connect(t, nil), Name: "printer", Namespace: "prod"}); err != nil || strings.HasPrefix(e.config.Identity, "from-env") {
		t.Errorf("without Fence the identity is %q, %v", e.config.Identity, err)
	}
	for _, uid := range []string{"", "uid"} { // in the environment
		t.Setenv("POD_UID", uid)
		for identity, isValid := range map[string]bool{"": uid != "", "uid_1": true, "uid_": true, "uid": false, "_1": false, "other_1": uid == "", "uid2_1": uid == ""} {
			_, err := New(Config{Cluster: connect(t, nil), Name: "printer", Namespace: "prod", Identity: identity, Fence: true})
			if want := "for Fence it must begin with the uid of the Pod"; isValid != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("the Pod %q, identity %q: error %v", uid, identity, err)
			}
		}
	}
}

// The fence of each lease would reject the writes of the holder of the other one.
func TestSecondFenceOnConnection(t *testing.T) {
	t.Parallel()
	cluster := connect(t, nil)
	fenced := func(name string) error {
		_, err := New(Config{Cluster: cluster, Name: name, Namespace: "prod", Fence: true, Identity: "uid_1"})
		return err
	}
	if err := errors.Join(fenced("printer"), fenced("printer")); err != nil {
		t.Errorf("two electors of one lease: %v", err)
	}
	if err := fenced("scanner"); err == nil || !strings.Contains(err.Error(), "the lease prod/printer has a fence on this Cluster") {
		t.Errorf("two fenced leases: %v", err)
	}
	if _, err := New(Config{Cluster: cluster, Name: "scanner", Namespace: "prod"}); err != nil {
		t.Errorf("a lease without a fence: %v", err)
	}
}

func TestFenceManifest(t *testing.T) {
	t.Parallel()
	lease, account := kube.Key{Namespace: "prod", Name: "printer"}, kube.Key{Namespace: "prod", Name: "operator"}
	text, err := FenceManifest(lease, account, Exemption{Resource: schema.GroupResource{Group: "example.com", Resource: "reports"}, Names: []string{"a"}},
		Exemption{Resource: schema.GroupResource{Resource: "configmaps"}})
	if err != nil {
		t.Fatal(err)
	}
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
	var role rbacv1.Role
	var roleBinding rbacv1.RoleBinding
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for _, into := range []any{&policy, &binding, &role, &roleBinding} {
		document, err := reader.Read()
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			t.Errorf("%v:\n%s", err, document)
		}
	}
	if _, err := reader.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last document: %v", err)
	}
	if rules := policy.Spec.MatchConstraints.ExcludeResourceRules; len(rules) != 4 || rules[2].APIGroups[0] != "example.com" || !slices.Equal(rules[2].ResourceNames, []string{"a"}) || len(rules[3].ResourceNames) > 0 || rules[3].Resources[1] != "configmaps/*" {
		t.Errorf("the exempt resources are %+v", rules)
	}
	if policy.Name != binding.Spec.PolicyName || *binding.Spec.ParamRef.ParameterNotFoundAction != admissionregistrationv1.AllowAction {
		t.Errorf("the binding is %+v", binding.Spec)
	}
	// YAML reads these names as numbers, booleans or null unless they are in quotation marks.
	for _, name := range []string{"2024", "1e3", "0x10", "true", "null", "on", "y", "2024-01-01"} {
		key := kube.Key{Namespace: name, Name: name}
		text, err := FenceManifest(key, key, Exemption{Resource: schema.GroupResource{Group: name, Resource: name}, Names: []string{name}})
		if err != nil {
			t.Fatal(err)
		}
		policy, binding, role, roleBinding := policy, binding, role, roleBinding
		documents := bytes.Split(text, []byte("\n---\n"))
		for i, into := range []any{&policy, &binding, &role, &roleBinding} {
			if err := yaml.UnmarshalStrict(documents[i], into); err != nil {
				t.Errorf("names %q: %v", name, err)
			}
		}
		got := []string{
			binding.Spec.ParamRef.Namespace, binding.Spec.ParamRef.Name, role.Namespace, role.Rules[1].ResourceNames[0],
			roleBinding.Namespace, roleBinding.Subjects[0].Namespace, roleBinding.Subjects[0].Name,
			policy.Spec.MatchConstraints.ExcludeResourceRules[2].Resources[0],
		}
		if slices.ContainsFunc(got, func(read string) bool { return read != name }) {
			t.Errorf("the names %q are read as %q", name, got)
		}
	}
	for want, c := range map[string]struct {
		lease, account kube.Key
		exempt         []Exemption
	}{
		"lease prod/: the name":                     {lease: kube.Key{Namespace: "prod"}, account: account},
		"account a'b/operator: the namespace":       {lease: lease, account: kube.Key{Namespace: "a'b", Name: "operator"}},
		"is longer than 253 characters":             {lease: kube.Key{Namespace: "prod", Name: strings.Repeat("a", 250)}, account: account},
		`exempt resource "Config Maps.example.com"`: {lease: lease, account: account, exempt: []Exemption{{Resource: schema.GroupResource{Group: "example.com", Resource: "Config Maps"}}}},
		`the name "a/b" is not valid`:               {lease: lease, account: account, exempt: []Exemption{{Resource: schema.GroupResource{Resource: "secrets"}, Names: []string{"a/b"}}}},
	} {
		if _, err := FenceManifest(c.lease, c.account, c.exempt...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q in it", err, want)
		}
	}
}
