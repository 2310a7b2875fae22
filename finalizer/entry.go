package finalizer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Has reports whether obj has the finalizer.
func Has(obj metav1.Object, name string) bool { return slices.Contains(obj.GetFinalizers(), name) }

// Add adds the finalizer name to the object that obj is, and reports whether it wrote. It is safe
// to call on every run: when obj has the finalizer, it makes no request. After it, what the
// finalizer is for may be made; not before.
//
// Unlike the functions of package client, it changes obj, so that the handler and what is around
// it go on with one object: obj gets the finalizers that the API server has now. It gets the
// resourceVersion too if nothing else has changed since obj was read; otherwise it keeps its own,
// because a later one would vouch for content that obj does not have, and let an update overwrite
// what others did.
//
// The patch holds only if the list of finalizers is the one that obj has, and the uid. When it is
// not, the live object is read and the patch made anew, 10 times at most; other writes to the
// object do not disturb.
//
// Options: DryRun, FieldOwner, FieldValidation of package client.
//
// Errors: a name without a domain ("shop.example.com/cleanup" has one), an obj without uid;
// client.ErrTerminating when the object is being deleted, so that nothing should be made for it any
// more (it may have the finalizer all the same, by an earlier write that obj did not show);
// client.ErrGone and client.ErrReplaced; client.ErrChanged, of which apierrors.IsConflict is true
// too, after the last attempt; otherwise what the request met.
func Add(ctx context.Context, c *client.Client, obj kube.Object, name string, options ...client.WriteOption) (changed bool, err error) {
	if err := check(c, obj, name); err != nil {
		return false, fmt.Errorf("add the finalizer %q: %w", name, err)
	}
	if Has(obj, name) {
		return false, nil
	}
	changed, err = edit{name: name, add: true}.do(ctx, c, obj, obj, options)
	if err != nil {
		return false, fmt.Errorf("add the finalizer %q: %w", name, err)
	}
	return changed, nil
}

// Remove removes the finalizer name, and no other, from the object that obj is, and reports
// whether it wrote. When obj does not have it, there is no request; when the object is gone, or
// was replaced, there is nothing to remove, and that is no error. obj is changed as Add does it.
//
// The patch holds only if the entry is where obj has it, and the uid is the same; otherwise it is
// made anew, as Add's.
//
// Options and errors: those of Add, but client.ErrTerminating, client.ErrGone and
// client.ErrReplaced.
func Remove(ctx context.Context, c *client.Client, obj kube.Object, name string, options ...client.WriteOption) (changed bool, err error) {
	if err := check(c, obj, name); err != nil {
		return false, fmt.Errorf("remove the finalizer %q: %w", name, err)
	}
	changed, err = edit{name: name}.do(ctx, c, obj, obj, options)
	if isGone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("remove the finalizer %q: %w", name, err)
	}
	return changed, nil
}

func isGone(err error) bool {
	return errors.Is(err, client.ErrGone) || errors.Is(err, client.ErrReplaced)
}

// check finds what is wrong with the arguments.
func check(c *client.Client, obj kube.Object, name string) error {
	var errs []error
	if c == nil {
		errs = append(errs, errors.New("the client is nil: client.New makes one"))
	}
	errs = append(errs, checkName(name))
	if usercode.IsNil(obj) {
		errs = append(errs, errors.New("the object is nil"))
	} else if obj.GetUID() == "" {
		errs = append(errs, fmt.Errorf("%s has no uid: use an object that was read from the cluster", kube.KeyOf(obj)))
	}
	return errors.Join(errs...)
}

// checkName demands a name of one's own: those without a domain belong to Kubernetes.
func checkName(name string) error {
	if problems := validation.IsQualifiedName(name); len(problems) > 0 {
		return fmt.Errorf("the name %q is not valid: %s", name, strings.Join(problems, "; "))
	}
	if !strings.Contains(name, "/") {
		return fmt.Errorf("the name %q has no domain: one of your own keeps it apart from others (\"shop.example.com/%s\")", name, name)
	}
	return nil
}
