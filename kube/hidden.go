package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
)

// HideFields hides the values of fields of a kind, in addition to those of Secrets: in logs, Events, problems,
// explanations, /debug, the changes that package client returns, plans, and the API server's errors about invalid
// objects and patches in the responses to the Cluster's clients. A hidden value is shown as "(hidden)". Call it before
// the Cluster is used.
//
// A path is one as in informer.Config.Cut, "spec.password" or `spec.options["tls.key"]`; it leads through lists:
// "spec.users.token" is the token of all users. Everything below a path is hidden too, also keys of maps and names of
// elements of lists, and so is a value that contains it.
//
// It cannot hide what other programs write into messages, a CEL rule's messageExpression for example, nor the errors
// and log lines of the caller's own code: Hides tells what to leave out there.
//
// Errors, all at once: a path that is malformed, or that the kind's Go type lacks, if one is registered.
func (c *Cluster) HideFields(kind schema.GroupKind, paths ...string) error {
	var errs []error
	for _, path := range paths {
		if err := c.checkField(kind, path); err != nil {
			errs = append(errs, fmt.Errorf("hide field %q of %s: %w", path, kind, err))
		} else if err := c.hidden.Add(kind, path); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// checkField returns an error if the Go types of a kind lack a field.
func (c *Cluster) checkField(kind schema.GroupKind, path string) error {
	steps, err := apiobject.ParsePath(path)
	if err != nil {
		return err
	}
	var missing error
	for known, t := range c.scheme.AllKnownTypes() {
		if known.GroupKind() != kind {
			continue
		}
		if missing = checkSteps(t, steps); missing == nil {
			return nil // one version has it
		}
	}
	return missing
}

func checkSteps(t reflect.Type, steps []string) (err error) {
	for i, step := range steps {
		if t, _, err = apiobject.StepField(t, step); err != nil {
			return fmt.Errorf("%q: %w", strings.Join(steps[:i+1], "."), err)
		}
	}
	return nil
}

// Hides reports whether the value at path must not be shown, because it contains a hidden value or is a part of one:
// fields of Secrets, and those of HideFields. path is one as in client.FieldChange: "spec.users[web].token".
func (c *Cluster) Hides(kind schema.GroupKind, path string) bool { return c.hidden.Hides(kind, path) }

// hideInError replaces hidden values in the API server's response to an invalid object or patch, which quotes them, and
// in its warnings.
func (c *Cluster) hideInError(req *http.Request, resp *http.Response) {
	call := callOf(req, c.basePath)
	if call.Resource.Resource == "" || c.hidden.Empty() && call.Resource.Resource != "secrets" {
		return
	}
	c.hideInWarnings(call, resp.Header.Values("Warning"))
	switch resp.StatusCode {
	case http.StatusUnprocessableEntity, http.StatusBadRequest, http.StatusInternalServerError, http.StatusConflict:
	default:
		return
	}
	// The API server's errors are not larger than an object; the rest is copied unchanged.
	const maxBytes = 3 << 20
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBytes))
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = failing{err}
	}
	unchanged := body{io.MultiReader(bytes.NewReader(text), rest), resp.Body}
	resp.Body = unchanged
	obj, _, err := c.codecs.UniversalDeserializer().Decode(text, nil, nil)
	status, ok := obj.(*metav1.Status)
	if err != nil || !ok {
		return
	}
	if !c.hideInStatus(status, call) {
		return
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if text, err = json.Marshal(status); err != nil {
		return
	}
	resp.Header.Set("Content-Type", "application/json")
	resp.Header.Set("Content-Length", strconv.Itoa(len(text)))
	resp.ContentLength = int64(len(text))
	resp.Body = body{bytes.NewReader(text), unchanged}
}

// hideInStatus replaces hidden values in a response. It returns whether there were some.
func (c *Cluster) hideInStatus(status *metav1.Status, call Call) (changed bool) {
	if status.Details == nil {
		status.Details = &metav1.StatusDetails{}
	}
	hides := c.hidesOf(call)
	for i := range status.Details.Causes {
		cause := &status.Details.Causes[i]
		if kind := (schema.GroupKind{Group: status.Details.Group, Kind: status.Details.Kind}); kind.Kind != "" {
			hides = func(path string) bool { return c.Hides(kind, path) }
		}
		field := strings.TrimPrefix(strings.TrimPrefix(cause.Field, "<nil>"), ".") // nil: of the whole object
		if shown := apiobject.ShownPath(field, hides); shown != field {
			status.Message = strings.ReplaceAll(status.Message, field, shown)
			cause.Field, changed = strings.ReplaceAll(cause.Field, field, shown), true
		}
		isHidden := hides(field)
		if status.Details.Kind == "" {
			isHidden = hides("") // a patch whose result cannot be read: the error quotes the whole object
		}
		if cause.Message != "" && isHidden && cause.Type != metav1.CauseTypeFieldManagerConflict {
			status.Message = strings.ReplaceAll(status.Message, cause.Message, apiobject.HiddenText)
			cause.Message, changed = apiobject.HiddenText, true
		}
	}
	// Server-side apply quotes values without a cause: ".spec.password: expected string, got ...".
	for _, quoted := range []string{", got ", ": duplicate entries for key "} {
		if message, _, quotes := strings.Cut(status.Message, quoted); quotes && hides("") {
			status.Message, changed = message+quoted+apiobject.HiddenText, true
		}
	}
	if shown := apiobject.HideInText(status.Message, hides); shown != status.Message {
		status.Message, changed = shown, true
	}
	return changed
}

// hideInWarnings replaces hidden keys in the API server's warnings, which name unknown fields.
func (c *Cluster) hideInWarnings(call Call, warnings []string) {
	for i, warning := range warnings {
		warnings[i] = apiobject.HideInText(warning, c.hidesOf(call))
	}
}

// hidesOf returns a function that reports whether the value of a field of a call's object must be hidden. If the kind
// is not known, it may be one of those in its group that have hidden fields.
func (c *Cluster) hidesOf(call Call) func(path string) bool {
	if call.Resource.Resource == "secrets" {
		return func(path string) bool { return c.Hides(schema.GroupKind{Kind: "Secret"}, path) }
	}
	if kind := c.knownKind(call.Resource); kind.Kind != "" {
		return func(path string) bool { return c.Hides(kind.GroupKind(), path) }
	}
	return func(path string) bool { return c.hidden.InGroup(call.Resource.Group, path) }
}
