package leader

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/kube"
)

//go:embed fence.yaml
var fenceTemplate string

// Exemption is what FenceManifest does not fence: a resource with its subresources.
type Exemption struct {
	// Resource is the plural name of the resource, and its API group.
	Resource schema.GroupResource
	// Names are those of the objects, in any namespace. Default: all objects.
	Names []string
}

// FenceManifest returns what Config.Fence needs, as YAML for kubectl apply: a ValidatingAdmissionPolicy and its
// binding, and a Role and its binding for the lease. account is the service account of the Pods that compete for the
// lease; no other program may use it. Kubernetes 1.30 and later have this kind of policy.
//
// The API server then rejects each create, update, delete and connect request of the account, with the status 422,
// unless the lease names the Pod to which the request's token is bound. These requests are exempt: those for the lease;
// Events, and reviews of tokens and of access, which standbys make too; and those in exempt, for example for the Secret
// and the registration of webhooks, which standbys serve and keep too. While the lease does not exist, no request is
// rejected: candidates create it again at once, with a holder that no Pod has.
func FenceManifest(lease, account kube.Key, exempt ...Exemption) ([]byte, error) {
	var errs []error
	for i, key := range []kube.Key{lease, account} {
		what := []string{"lease", "account"}[i]
		if problems := validation.IsDNS1123Label(key.Namespace); problems != nil {
			errs = append(errs, fmt.Errorf("%s %s: the namespace is not valid: %s", what, key,
				strings.Join(problems, ", ")))
		}
		if problems := validation.IsDNS1123Subdomain(key.Name); problems != nil {
			errs = append(errs, fmt.Errorf("%s %s: the name is not valid: %s", what, key, strings.Join(problems, ", ")))
		}
	}
	for _, e := range exempt {
		resource := e.Resource
		if resource.Group != "" && validation.IsDNS1123Subdomain(resource.Group) != nil ||
			validation.IsDNS1123Label(resource.Resource) != nil {
			errs = append(errs, fmt.Errorf("exempt resource %q: want the plural name of a resource and its API group",
				resource))
		}
		for _, name := range e.Names {
			if problems := content.IsPathSegmentName(name); name == "" || problems != nil {
				errs = append(errs, fmt.Errorf("exempt resource %q: the name %q is not valid: %s", resource, name,
					strings.Join(problems, ", ")))
			}
		}
	}
	if policy := fencePolicy(lease); len(policy) > validation.DNS1123SubdomainMaxLength {
		errs = append(errs, fmt.Errorf("lease %s: the name of the policy, %s, is longer than %d characters", lease,
			policy, validation.DNS1123SubdomainMaxLength))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("fence manifest: %w", errors.Join(errs...))
	}
	var rules strings.Builder
	for _, e := range exempt {
		fmt.Fprintf(&rules, "\n"+`    - apiGroups: ["%s"]
      apiVersions: ["*"]
      resources: ["%[2]s", "%[2]s/*"]
      operations: ["*"]`, e.Resource.Group, e.Resource.Resource)
		for i, name := range e.Names {
			if i == 0 {
				rules.WriteString("\n      resourceNames:")
			}
			fmt.Fprintf(&rules, "\n      - %q", name)
		}
	}
	// Not a text/template, with which the linker would keep all methods of the program.
	return []byte(strings.NewReplacer(
		"{{.Policy}}", fencePolicy(lease), "{{.Lease.Namespace}}", lease.Namespace, "{{.Lease.Name}}", lease.Name,
		"{{.Account.Namespace}}", account.Namespace, "{{.Account.Name}}", account.Name, "{{.Exempt}}", rules.String(),
		"{{.PodUID}}", "authentication.kubernetes.io/pod-uid", "{{.Separator}}", identitySeparator,
		"{{.UnboundToken}}", unboundToken,
	).Replace(fenceTemplate)), nil
}

// fencePolicy returns the name of the policy for a lease. A namespace contains no dot, so it is unique.
func fencePolicy(lease kube.Key) string { return "fence." + lease.Namespace + "." + lease.Name }

// identitySeparator is between the uid of the Pod and the rest of an identity. No uid contains it.
const identitySeparator = "_"

// unboundToken is the policy's message for a token with which no process can work.
const unboundToken = "the token of the request is not bound to a Pod"

// fence is the policy of FenceManifest, as an Elector sees it.
type fence struct {
	elector *Elector
	denied  string // is in the error of each request that the policy rejects
}

func newFence(e *Elector) *fence {
	policy := fencePolicy(kube.Key{Namespace: e.config.Namespace, Name: e.config.Name})
	return &fence{elector: e, denied: "ValidatingAdmissionPolicy '" + policy + "'"}
}

// Intervals between two probes of a new leader. The policy sees a change of the lease within about 10 ms.
const (
	firstProbe   = 2 * time.Millisecond
	slowestProbe = 64 * time.Millisecond // a multiple of firstProbe: the interval doubles
)

// probe sends a write without an effect, and reports whether the policy rejected it. The error is not nil if another
// reason made it fail.
func (f *fence) probe(ctx context.Context) (denied bool, err error) {
	e := f.elector
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.config.Namespace, GenerateName: "fence-"}}
	setHolder(&lease.Spec, e.config.Identity, e.config.LeaseDuration, false)
	err = e.leases.createDryRun(ctx, lease)
	if err != nil && strings.Contains(err.Error(), f.denied) && !strings.Contains(err.Error(), unboundToken) {
		return true, nil
	}
	return false, err
}

// stands reports whether the policy rejects writes of this process, which does not hold the lease. Otherwise the policy
// is missing, and the process must not lead.
func (f *fence) stands(ctx context.Context) bool {
	request, cancel := context.WithTimeout(ctx, f.elector.config.RenewDeadline/2)
	defer cancel()
	denied, err := f.probe(request)
	switch {
	case ctx.Err() != nil:
		return false
	case err == nil && !denied:
		err = errors.New("no policy rejects the writes of a process without the lease: apply the objects of " +
			"leader.FenceManifest " +
			"for the account of this process; if they were deleted before, restart the API server")
	}
	f.waits(request, err)
	return err == nil
}

// await waits until the policy accepts the writes of this process, which holds the lease. accepted is false if ctx ends
// first, with the leadership or because the process ends, or after LeaseDuration: then another candidate must have the
// lease, because this one cannot work.
func (f *fence) await(ctx context.Context) (accepted bool) {
	e, began := f.elector, time.Now()
	for interval := firstProbe; ; interval = min(2*interval, slowestProbe) {
		request, cancel := context.WithTimeout(ctx, e.config.RenewDeadline/2)
		denied, err := f.probe(request)
		if err == nil && denied && interval == slowestProbe {
			err = fmt.Errorf("the policy rejects writes of the leader: its requests need a token that is bound "+
				"to the Pod %s", e.config.podUID())
		}
		if ctx.Err() == nil && (err != nil || !denied) {
			f.waits(request, err)
		}
		cancel()
		switch {
		case ctx.Err() != nil:
			return false
		case err == nil && !denied:
			e.logger.InfoContext(ctx, "the API server rejects writes of other processes", "after", time.Since(began))
			return true
		case time.Since(began) >= e.config.LeaseDuration:
			e.logger.WarnContext(ctx, "leadership given up, the fence rejects the writes of this process", "after",
				time.Since(began))
			return false
		}
		retryrules.Wait(ctx, interval)
	}
}

// fenceError is why a process must not lead or work.
type fenceError struct{ error }

// Unwrap returns the error of the probe.
func (e *fenceError) Unwrap() error { return e.error }

// waits records why this process must not lead or work, or nil. request is the context of the last probe.
func (f *fence) waits(request context.Context, err error) {
	e := f.elector
	if err != nil {
		e.disconnectAfter(request, err)
		err = &fenceError{fmt.Errorf("probe the fence of lease %s: %w", e.lease, err)}
		if hint := hintFor(err, e.config.Namespace); hint != "" {
			err = fmt.Errorf("%w: %s", err, hint)
		}
	}
	e.mu.Lock()
	defer e.unlock()
	if err != nil && e.fenceErr == nil {
		e.logLater(func() { e.logger.Warn("leader election waits for the fence", "error", err) })
	}
	e.fenceErr = err
}
