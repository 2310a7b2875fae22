package apiserver

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// generateAttempts is how often the server tries names for an object with generateName.
const generateAttempts = 8

func (r *request) create() (*response, error) {
	media, err := contentType(r.Header)
	if err != nil {
		return nil, err
	}
	body, err := r.body()
	if err != nil {
		return nil, err
	}
	options, err := r.createOptions()
	if err != nil {
		return nil, err
	}
	obj, err := r.decodeBody(body, media, options)
	if err != nil {
		return nil, err
	}
	wipeSystemFields(obj)
	if err := r.setNamespace(obj); err != nil {
		return nil, err
	}
	r.removeDuplicateOwners(obj, false)
	obj = r.manage(nil, obj, options)
	if err := r.mutate(obj, nil, options); err != nil {
		return nil, err
	}
	r.removeDuplicateOwners(obj, true)
	if err := r.checkNamespace(true, cmp.Or(obj.GetName(), obj.GetGenerateName(), "Unknown")); err != nil {
		return nil, err
	}
	rec, err := r.store(obj, options)
	if err != nil {
		return nil, err
	}
	return r.object(http.StatusCreated, rec)
}

// decodeBody decodes an object, and turns strict errors into warnings or into an error, as the options demand.
func (r *request) decodeBody(body []byte, media mediaType, options writeOptions) (Object, error) {
	obj, actual, err := r.serving.codecs.decode(r.kind, body, media, options.strict())
	if err != nil {
		strict := strictErrors(err)
		if obj == nil || len(strict) == 0 || options.validation != metav1.FieldValidationWarn {
			if r.scaled() && r.custom { // the real server fails to describe the error
				return nil,
					apierrors.NewBadRequest(
						`no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"`)
			}
			return nil, undecodable(r.kind, actual, err, body)
		}
		r.warnStrict(strict)
	}
	if gv := actual.GroupVersion(); gv != r.kind.GroupVersion() && !r.evicts(gv) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the "+
			"expected API version (%s)", gv, r.kind.GroupVersion()))
	}
	return obj, nil
}

// warnStrict adds strict errors as warnings. An error of the YAML decoder can have several lines.
func (r *request) warnStrict(errs []error) {
	for _, err := range errs {
		text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
		lines, isYAML := strings.CutPrefix(text, "yaml: unmarshal errors:\n")
		if !isYAML {
			r.warn(err.Error())
			continue
		}
		for line := range strings.SplitSeq(lines, "\n") {
			r.warn(strings.TrimSpace(line))
		}
	}
}

// store creates an object. With generateName it tries some names.
func (r *request) store(obj Object, options writeOptions) (*record, error) {
	generated := obj.GetGenerateName() != "" && obj.GetName() == ""
	for attempt := 1; ; attempt++ {
		candidate := obj
		if generated {
			candidate = obj.DeepCopyObject().(Object)
			candidate.SetName(r.generateName(obj))
		}
		rec, err := r.storeNamed(candidate, options)
		if obj.GetGenerateName() != "" && apierrors.IsAlreadyExists(err) {
			err = apierrors.NewGenerateNameConflict(r.kind.groupResource(), candidate.GetName(), 1)
			if generated && attempt < generateAttempts {
				continue
			}
		}
		return rec, err
	}
}

// generateName returns the next name for an object with generateName.
func (r *request) generateName(obj Object) string {
	s := r.server
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values.generateName(r.kind.groupResource().String(), r.namespace, obj.GetGenerateName())
}

// uid returns a uid for a new object.
func (r *request) uid(obj Object) types.UID {
	s := r.server
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values.uid(r.kind.groupResource().String(), obj.GetNamespace(), obj.GetName())
}

// storeNamed creates an object that has a name. Error: errChanged, as alreadyExists describes.
func (r *request) storeNamed(obj Object, options writeOptions) (*record, error) {
	if err := r.setNamespace(obj); err != nil { // of an object that admission has changed
		return nil, err
	}
	obj.SetCreationTimestamp(now())
	obj.SetUID(r.uid(obj))
	if obj.GetUID() == "" { // the metadata is not an object
		return nil, apierrors.NewInternalError(errors.New("system metadata was not initialized"))
	}
	release, err := r.allocate(obj, nil, options)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := r.prepareNew(obj); err != nil {
		return nil, err
	}
	if r.kind.Rules.Warnings != nil {
		r.warn(r.kind.Rules.Warnings(obj, nil)...)
	}
	if r.kind.Rules.Canonicalize != nil {
		r.kind.Rules.Canonicalize(obj)
	}
	if err := r.admit(obj, nil, options); err != nil {
		return nil, err
	}
	if existing := r.find(obj.GetNamespace(), obj.GetName()); existing != nil {
		return nil, r.alreadyExists(obj.GetName(), existing)
	}
	version, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err == nil && version != 0 && !options.dryRun && r.Method == http.MethodPost {
		return nil, errors.New("resourceVersion should not be set on objects to be created")
	}
	rec, err := r.commit(obj, nil, options.dryRun)
	if errors.Is(err, errChanged) { // created by another request since
		return nil, r.alreadyExists(obj.GetName(), r.find(obj.GetNamespace(), obj.GetName()))
	}
	return rec, err
}

// allocate gives an object its values that no other object has. No other request gets them until release, which follows
// the write.
func (r *request) allocate(obj, old Object, options writeOptions) (release func(), err error) {
	if r.kind.Rules.Allocate == nil || r.subresource != "" {
		return func() {}, nil
	}
	s, t := r.server, r.table
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := Stored{
		Objects: append(t.objects(), t.allocated...), DryRun: options.dryRun,
		Random: s.values.next("allocated", r.kind.groupResource().String(), obj.GetNamespace(), obj.GetName()).Uint64,
	}
	if err := r.kind.Rules.Allocate(obj, old, stored); err != nil || options.dryRun {
		return func() {}, err
	}
	reserved := obj.DeepCopyObject().(Object) // the request still changes obj
	t.allocated = append(t.allocated, reserved)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.allocated = slices.DeleteFunc(t.allocated, func(other Object) bool { return other == reserved })
	}, nil
}

// find returns the stored object, or nil.
func (r *request) find(namespace, name string) *record {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	return r.table.get(keyOf(namespace, name))
}

// alreadyExists returns the error of a create. existing is nil if the object was deleted meanwhile. A request that
// creates or updates gets errChanged, and updates the object then.
func (r *request) alreadyExists(name string, existing *record) error {
	if r.Method != http.MethodPost {
		return errChanged
	}
	err := apierrors.NewAlreadyExists(r.kind.groupResource(), name)
	if existing != nil && existing.obj.GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}

// prepareNew normalizes and validates a new object.
func (r *request) prepareNew(obj Object) error {
	if err := r.kind.prepareContent(obj, nil, false); err != nil {
		return err
	}
	rules := r.kind.Rules
	if rules.Prepare != nil {
		rules.Prepare(obj, nil)
	}
	if errs := r.validate(obj, nil); len(errs) > 0 {
		return r.invalid(obj, errs)
	}
	if errs := ValidateMetadata(obj, !r.kind.ClusterScoped, pathSegment); len(errs) > 0 {
		return r.invalid(obj, errs)
	}
	return nil
}

// invalid returns the error of an invalid object. It names the kind that a custom resource has, which is wrong if
// admission has changed it.
func (r *request) invalid(obj Object, errs field.ErrorList) error {
	kind := r.kind.storage().GroupKind()
	if r.kind.custom() {
		kind = obj.GetObjectKind().GroupVersionKind().GroupKind()
	}
	return apierrors.NewInvalid(kind, obj.GetName(), errs)
}

// validate returns what is wrong with an object by the rules of its kind; old is nil for a new object.
func (r *request) validate(obj, old Object) field.ErrorList {
	rules := r.kind.Rules
	switch {
	case rules.Check != nil:
		return rules.Check(r.subresource, obj, old, r.warn)
	case r.subresource != "" && !r.scaled() && rules.ValidateSubresource != nil:
		return rules.ValidateSubresource(r.subresource, obj, old)
	case rules.Validate != nil:
		return rules.Validate(obj, old)
	}
	return nil
}
