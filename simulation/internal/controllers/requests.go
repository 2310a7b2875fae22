package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// requester sends the requests of one controller.
type requester struct {
	transport http.RoundTripper
	userAgent string
	// written is called after each write.
	written func(context.Context)
}

// managerAgent returns the user agent of a controller in kube-controller-manager.
func managerAgent(controller string) string {
	return "kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/simulation/" + controller
}

// path returns the path of the objects of a kind. rest are the name of an object and its subresource.
func path(k *apiserver.Kind, namespace string, rest ...string) string {
	parts := []string{"/apis", k.Group, k.Version}
	if k.Group == "" {
		parts = []string{"/api", k.Version}
	}
	if !k.ClusterScoped && namespace != "" {
		parts = append(parts, "namespaces", namespace)
	}
	return strings.Join(append(append(parts, k.Resource), rest...), "/")
}

// send sends a request, and decodes the response into result, unless that is nil.
func (r *requester) send(ctx context.Context, method, path, contentType string, body, result any) error {
	var encoded []byte
	if body != nil {
		var err error
		if encoded, err = json.Marshal(body); err != nil {
			return fmt.Errorf("%s %s: encode the request: %w", method, path, err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method,
		(&url.URL{Scheme: "http", Host: "simulation.invalid", Path: path}).String(), bytes.NewReader(encoded))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	req.Header.Set("User-Agent", r.userAgent)
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := r.transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer res.Body.Close()
	if method != http.MethodGet {
		r.written(ctx)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("%s %s: read the response: %w", method, path, err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		status := metav1.Status{}
		if json.Unmarshal(text, &status) != nil || status.Status != metav1.StatusFailure {
			status = metav1.Status{Status: metav1.StatusFailure, Code: int32(res.StatusCode), Message: string(text)}
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(text, result); err != nil {
		return fmt.Errorf("%s %s: decode the response: %w", method, path, err)
	}
	return nil
}

const jsonType = "application/json"

// create creates an object.
func (r *requester) create(ctx context.Context, k *apiserver.Kind, obj apiserver.Object) error {
	obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return r.send(ctx, http.MethodPost, path(k, obj.GetNamespace()), jsonType, obj, nil)
}

// createAndRead creates an object, and replaces obj by the stored one.
func (r *requester) createAndRead(ctx context.Context, k *apiserver.Kind, obj apiserver.Object) error {
	obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return r.sendAndRead(ctx, http.MethodPost, path(k, obj.GetNamespace()), obj)
}

// update updates an object or a subresource of it.
func (r *requester) update(ctx context.Context, k *apiserver.Kind, obj apiserver.Object, subresource ...string) error {
	obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return r.send(ctx, http.MethodPut, path(k, obj.GetNamespace(), append([]string{obj.GetName()}, subresource...)...),
		jsonType, obj, nil)
}

// updateAndRead updates an object or a subresource of it, and replaces obj by the stored object.
func (r *requester) updateAndRead(
	ctx context.Context, k *apiserver.Kind, obj apiserver.Object, subresource ...string,
) error {
	obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return r.sendAndRead(ctx, http.MethodPut,
		path(k, obj.GetNamespace(), append([]string{obj.GetName()}, subresource...)...), obj)
}

// sendAndRead sends an object, and replaces it by the one in the response.
func (r *requester) sendAndRead(ctx context.Context, method, path string, obj apiserver.Object) error {
	stored := reflect.New(reflect.TypeOf(obj).Elem()) // fields that are not in the response must not remain
	if err := r.send(ctx, method, path, jsonType, obj, stored.Interface()); err != nil {
		return err
	}
	reflect.ValueOf(obj).Elem().Set(stored.Elem())
	return nil
}

// patch sends a patch of an object.
func (r *requester) patch(
	ctx context.Context, k *apiserver.Kind, obj metav1.Object, patchType types.PatchType, patch any,
) error {
	return r.send(ctx, http.MethodPatch, path(k, obj.GetNamespace(), obj.GetName()), string(patchType), patch, nil)
}

// delete deletes an object.
func (r *requester) delete(
	ctx context.Context, k *apiserver.Kind, obj metav1.Object, options metav1.DeleteOptions,
) error {
	options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	return r.send(ctx, http.MethodDelete, path(k, obj.GetNamespace(), obj.GetName()), jsonType, options, nil)
}
