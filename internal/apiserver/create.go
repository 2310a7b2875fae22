package apiserver

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	r.server.mu.Lock()
	defer r.server.mu.Unlock()
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
func (r *request) decodeBody(body []byte, media mediaType, options writeOptions) (object, error) {
	obj, actual, err := r.server.codecs.decode(r.kind, body, media, options.strict())
	if err != nil {
		strict := strictErrors(err)
		if obj == nil || len(strict) == 0 || options.validation != metav1.FieldValidationWarn {
			return nil, undecodable(r.kind, actual, err, body)
		}
		r.warnStrict(strict)
	}
	if gv := actual.GroupVersion(); gv != r.kind.GroupVersion() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", gv, r.kind.GroupVersion()))
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

// store creates an object. With generateName it tries some names. Server.mu is held.
func (r *request) store(obj object, options writeOptions) (*record, error) {
	generated := obj.GetGenerateName() != "" && obj.GetName() == ""
	for attempt := 1; ; attempt++ {
		candidate := obj
		if generated {
			candidate = obj.DeepCopyObject().(object)
			candidate.SetName(r.server.generateName(obj.GetGenerateName()))
		}
		rec, err := r.storeNamed(candidate, options)
		if generated && apierrors.IsAlreadyExists(err) {
			err = apierrors.NewGenerateNameConflict(r.kind.groupResource(), candidate.GetName(), 1)
			if attempt < generateAttempts {
				continue
			}
		}
		return rec, err
	}
}

// storeNamed creates an object that has a name. Server.mu is held.
func (r *request) storeNamed(obj object, options writeOptions) (*record, error) {
	obj.SetCreationTimestamp(now())
	obj.SetUID(r.server.uid())
	if err := r.prepareNew(obj); err != nil {
		return nil, err
	}
	if r.kind.rules.warnings != nil {
		r.warn(r.kind.rules.warnings(obj, nil)...)
	}
	if r.kind.rules.canonicalize != nil {
		r.kind.rules.canonicalize(obj)
	}
	if existing := r.table.get(keyOf(obj.GetNamespace(), obj.GetName())); existing != nil {
		err := apierrors.NewAlreadyExists(r.kind.groupResource(), obj.GetName())
		if existing.obj.GetDeletionTimestamp() != nil {
			err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
		}
		return nil, err
	}
	version, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err == nil && version != 0 && !options.dryRun && r.Method == http.MethodPost {
		return nil, errors.New("resourceVersion should not be set on objects to be created")
	}
	return r.server.commit(r.table, obj, nil, options.dryRun)
}

// prepareNew normalizes and validates a new object.
func (r *request) prepareNew(obj object) error {
	if err := r.kind.prepareContent(obj, nil, false); err != nil {
		return err
	}
	rules := r.kind.rules
	if rules.prepare != nil {
		rules.prepare(obj, nil)
	}
	if rules.validate != nil {
		if errs := rules.validate(obj, nil); len(errs) > 0 {
			return apierrors.NewInvalid(r.kind.GroupKind(), obj.GetName(), errs)
		}
	}
	if errs := validateMetadata(obj, !r.kind.ClusterScoped, pathSegment); len(errs) > 0 {
		return apierrors.NewInvalid(r.kind.GroupKind(), obj.GetName(), errs)
	}
	return nil
}
