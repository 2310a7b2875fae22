package client

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Page is a part of a list.
type Page[T any] struct {
	// Objects are at most as many as PageSize, ordered by namespace and name. They belong to the caller. A page may be
	// empty although others follow.
	Objects []T
	// Continue is the token of the next page. It is empty on the last page. It is valid for some minutes, in any
	// process, for the same selection.
	Continue string
	// ResourceVersion is the version of the state of this page. A Watch with NotOlderThan and the ResourceVersion of
	// the first page starts with the first change after that state.
	ResourceVersion string
	// Remaining is the number of objects after this page. It is 0 if the API server does not report it, as with a label
	// or field selector.
	Remaining int64
}

// ListPage returns one page of the selected objects of type T, for callers that hand tokens to their own
// clients, or that continue a list in another process. In one process, List is simpler. continueAt is the token of the
// previous page; empty: the first page.
//
// ListPage always makes a request: an informer has no order in which a list could be continued. All pages are of the
// state of the first one, unless the API server drops that state. The selection must be that of the first page, because
// a token contains only a version and the last key. NotOlderThan is ignored after the first page. A selection of
// several Namespaces is an error.
//
// Options: those of List.
//
// Errors: apierrors.IsResourceExpired is true if the API server has dropped the state of the first page. The Continue
// of the returned page is then a token that continues after the last object in the current state; it is empty if the
// list must start again. apierrors.IsBadRequest is true for an invalid token.
func ListPage[T kube.Object](
	ctx context.Context, c *Client, selection kube.Selection, continueAt string, options ...ReadOption,
) (Page[T], error) {
	t, err := beginList[T](ctx, c, "list", selection, options, optionsOfList)
	if err != nil {
		return Page[T]{}, err
	}
	o := t.listOptions()
	if continueAt != "" {
		o.Continue, o.ResourceVersion, o.ResourceVersionMatch = continueAt, "", ""
	}
	response, err := t.page(ctx, o)
	if err != nil {
		return Page[T]{Continue: continueAfter(err)}, t.failed(t.withoutIndex(err))
	}
	listed := Page[T]{
		Objects: make([]T, len(response.Items)), Continue: response.Continue, ResourceVersion: response.ResourceVersion,
	}
	if response.RemainingItemCount != nil {
		listed.Remaining = *response.RemainingItemCount
	}
	var none T
	for i, raw := range response.Items {
		if listed.Objects[i], err = decodeOneOf(raw, t.kind, none); err != nil {
			return Page[T]{}, t.failed(err)
		}
	}
	return listed, nil
}

// page requests one page.
func (t target) page(ctx context.Context, options metav1.ListOptions) (*page, error) {
	response := &page{}
	r := t.request(VerbList)
	r.List, r.Response = options, response
	return response, t.client.send(ctx, r)
}
