package operator

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Records is the system outside the cluster that knows hosts by name. Both calls may be
// repeated.
type Records interface {
	// Ensure makes host lead to target.
	Ensure(ctx context.Context, host, target string) error
	// Delete removes the record of host. That there is none is no error.
	Delete(ctx context.Context, host string) error
}

// HTTPRecords are the records behind an API: PUT and DELETE of the host below URL, with the
// target as the body.
type HTTPRecords struct {
	URL    string
	Client *http.Client
}

// Ensure implements Records.
func (h HTTPRecords) Ensure(ctx context.Context, host, target string) error {
	return h.call(ctx, http.MethodPut, host, target)
}

// Delete implements Records.
func (h HTTPRecords) Delete(ctx context.Context, host string) error {
	return h.call(ctx, http.MethodDelete, host, "")
}

func (h HTTPRecords) call(ctx context.Context, method, host, body string) error {
	request, err := http.NewRequestWithContext(ctx, method, h.URL+"/"+url.PathEscape(host), strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("record of %s: %w", host, err)
	}
	response, err := h.Client.Do(request)
	if err != nil {
		return fmt.Errorf("record of %s: %w", host, err)
	}
	defer response.Body.Close()
	gone := method == http.MethodDelete && response.StatusCode == http.StatusNotFound
	if response.StatusCode/100 != 2 && !gone {
		return fmt.Errorf("record of %s: %s answers %s", host, method, response.Status)
	}
	return nil
}
